package install

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/source/discovery"
	"github.com/skillsd/skillsd/skills/source/web"
)

// maxRefs is the maximum length of the list of a repository's refs, in bytes.
const maxRefs = 32 << 20

// locate returns a request whose source, ref and directory are written in full. A source that exists on this
// machine wins over a short form.
//
// If the address leaves something open, its server decides before anything is fetched: the refs of the
// repository separate a ref from a directory, and a request shows whether a URL is a repository, a site with
// an index or a page.
//
// Errors: *SourceError for an address of something else than a source, which it names; *FetchError; errors
// of ctx.
func (p *Plan) locate(ctx context.Context, req Request) (Request, error) {
	a, ok, err := addressOf(req.Source)
	if err != nil || !ok {
		return req, err
	}
	given := req.Source
	req.Source, req.Skills = a.source, slices.Concat(req.Skills, a.skills)
	if req.Ref == "" {
		req.Ref = a.ref
	}
	if len(a.skills) == 1 && req.Ref == "" {
		req.orRef = a.skills[0]
	}
	if a.dir != "" {
		req.Subdir = path.Join(a.dir, req.Subdir)
	}
	if len(a.rest) > 0 {
		if err := p.separate(ctx, &a, &req); err != nil {
			return req, err
		}
	}
	if !a.repo && req.Ref == "" && !isDownload(req.Source) {
		req.Source, err = p.whatIs(ctx, req)
		if err != nil {
			return req, err
		}
		a.short = a.short || req.Source != given
	}
	if a.short {
		p.i.located(given, req)
	}
	return req, nil
}

// addressOf returns the address that a source is. ok is false for one that is written in full, and for one
// that is of this machine.
//
// Errors: *SourceError for an address of something else than a source.
func addressOf(given string) (a address, ok bool, err error) {
	if _, err := os.Stat(given); err == nil || isArchive(given) {
		return a, false, nil
	}
	if _, ok := isIndexURL(given); ok {
		return a, false, nil
	}
	a, ok = readAddress(given)
	if !ok {
		return a, false, nil
	}
	if a.other != "" {
		return a, false, refuse("copy the address of the repository, or of the skill's directory in it",
			"%s is %s, not a skill or a repository", clip(given), a.other)
	}
	first, _, _ := strings.Cut(given, "/")
	if _, err := os.Stat(first); err == nil && a.dir != "" {
		// The source is a misspelt path in a directory of this machine.
		return a, false, nil
	}
	return a, true, nil
}

// separate sets the ref and the directory that a page of a repository shows.
func (p *Plan) separate(ctx context.Context, a *address, req *Request) error {
	if req.Subdir != "" {
		return refuse("leave one of them out", "--subdir %s, and the address names a directory too",
			clip(req.Subdir))
	}
	if req.Ref != "" {
		inside, ok := strings.CutPrefix(strings.Join(a.rest, "/")+"/", req.Ref+"/")
		if !ok {
			return refuse("leave --ref out", "--ref %s, and the address names another one", clip(req.Ref))
		}
		a.rest = []string{req.Ref}
		if inside = strings.Trim(inside, "/"); inside != "" {
			a.rest = append(a.rest, strings.Split(inside, "/")...)
		}
	}
	refs, _, err := p.refs(ctx, req.Source, req.Access)
	if err != nil {
		return err
	}
	ref, inside := a.refAndPath(refs)
	if a.tag && !slices.Contains(refs, ref) {
		return refuse("copy the address again: tags are renamed and deleted", "%s has no tag %q",
			req.Source, clip(ref))
	}
	if !slices.Contains(refs, ref) && !commitID().MatchString(ref) {
		return refuse("copy the address again: branches are renamed and deleted; "+
			"a commit needs all of its digits", "%s has no branch and no tag %q", req.Source, clip(ref))
	}
	req.Ref, req.Subdir, req.shown = ref, inside, inside
	if a.file && inside != "" {
		req.Subdir = strings.TrimPrefix(path.Dir("/"+inside), "/")
	}
	return nil
}

// refs returns the names of the branches and tags of a repository, and the name of its default branch, "" if
// its server does not show that.
func (p *Plan) refs(
	ctx context.Context, source string, access Access,
) (names []string, head string, err error) {
	dir := p.dir + "/refs-" + rand.Text()
	if err := p.i.root.Mkdir(dir, 0o700); err != nil {
		return nil, "", err
	}
	// Close removes the rest if this fails.
	defer func() { _ = p.i.root.RemoveAll(dir) }()
	r, err := open(ctx, p.i.cfg.Git, p.i.path(dir), source, access)
	if err != nil {
		return nil, "", gitError(source, err)
	}
	// A pattern matches whole segments at the end of a ref.
	out, err := r.output(ctx, maxRefs, "ls-remote", "--quiet", "--symref", "--", source,
		"HEAD", "refs/heads/*", "refs/tags/*")
	if err != nil {
		return nil, "", gitError(source, err)
	}
	for line := range strings.Lines(string(out)) {
		first, ref, _ := strings.Cut(strings.TrimSpace(line), "\t")
		branch, isLink := strings.CutPrefix(first, "ref: refs/heads/")
		// The name comes from the server, and --follow makes it an argument of git.
		if isLink && ref == "HEAD" && checkRef(branch) == nil {
			head = branch
		}
		for _, kind := range []string{"refs/heads/", "refs/tags/"} {
			if name, ok := strings.CutPrefix(ref, kind); ok {
				// ls-remote lists an annotated tag a second time, with ^{} for its commit.
				names = append(names, strings.TrimSuffix(name, "^{}"))
			}
		}
	}
	return names, head, nil
}

// whatIs asks the server of a URL whether it is a repository, a site with an index of skills or a SKILL.md,
// and returns the URL of the source. If the server does not answer, it returns the URL itself.
func (p *Plan) whatIs(ctx context.Context, req Request) (string, error) {
	at, err := web.Parse(req.Source, req.Insecure)
	if err != nil {
		// resolve refuses it, with the reason.
		return req.Source, nil
	}
	client := p.client(at, req.Access)
	if mayBeGit(ctx, client, at) {
		return req.Source, ctx.Err()
	}
	if index := findIndex(ctx, client, at); index != nil {
		return index.String(), nil
	}
	what := kindOfPage(ctx, client, at)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return "", refuse("give the address of a repository, such as https://github.com/OWNER/REPOSITORY, "+
		"or of a page that shows its files", "%s is %s", web.Shown(at), what)
}

// mayBeGit reports whether a URL names a repository, or its server does not show that: git may have
// credentials for it, and otherwise names the error.
func mayBeGit(ctx context.Context, client *web.Client, at *url.URL) bool {
	asked := *at
	// Only a repository answers the first request of a clone with a type of git (gitprotocol-http).
	asked.Path, asked.RawQuery = strings.TrimRight(at.Path, "/")+"/info/refs", "service=git-upload-pack"
	got, err := client.Fetch(ctx, &asked, maxRefs, io.Discard)
	if err == nil {
		return strings.HasPrefix(got.Type, "application/x-git-")
	}
	refused, answered := errors.AsType[*web.StatusError](err)
	return !answered || mayBePrivate(refused.Status)
}

// findIndex returns the URL of the index of the site of a URL, or nil.
func findIndex(ctx context.Context, client *web.Client, at *url.URL) *url.URL {
	for _, index := range indexesOf(at) {
		var text bytes.Buffer
		if _, err := client.Fetch(ctx, index, discovery.MaxIndex, &text); err != nil {
			continue
		}
		if _, err := discovery.Parse(text.Bytes(), index); err == nil || looksLikeJSON(text.Bytes()) {
			// fetch names the fault of an index that does not parse.
			return index
		}
	}
	return nil
}

// kindOfPage describes a URL that is no source.
func kindOfPage(ctx context.Context, client *web.Client, at *url.URL) string {
	got, err := client.Fetch(ctx, at, 1<<20, io.Discard)
	switch {
	case err == nil && got.Type == "text/html":
		return "a web page, neither a git repository nor a site that publishes skills"
	case err == nil && got.Type != "":
		return "a file of the type " + clip(got.Type) + ", not a source of skills"
	}
	return "neither a git repository nor a site that publishes skills"
}

// mayBePrivate reports whether a server answers like this for a repository that it shows to some users only.
func mayBePrivate(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden ||
		status == http.StatusProxyAuthRequired || status >= 500
}

// indexesOf returns the URLs at which the site of a URL may publish an index: below the URL itself, and below
// its host; of the current version, and of 0.1.0.
func indexesOf(at *url.URL) []*url.URL {
	dirs := []string{strings.TrimRight(at.Path, "/")}
	if dirs[0] != "" {
		dirs = append(dirs, "")
	}
	var all []*url.URL
	for _, dir := range dirs {
		for _, name := range []string{discovery.Path, discovery.OldPath} {
			to := *at
			to.Path, to.RawPath = dir+name, ""
			all = append(all, &to)
		}
	}
	return all
}

func looksLikeJSON(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n"), []byte("{"))
}
