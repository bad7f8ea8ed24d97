package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
)

// gitKind is a git repository.
type gitKind struct{ plain }

func (gitKind) resolve(given, ref string, insecure bool) (Origin, bool, error) {
	if !isURL(given) {
		return Origin{}, false, nil
	}
	if _, err := parseURL(given, insecure); err != nil {
		return Origin{}, false, err
	}
	if scheme, rest, ok := strings.Cut(given, "://"); ok {
		// git knows schemes in lower case only.
		given = strings.ToLower(scheme) + "://" + rest
	}
	return Origin{Kind: KindGit, Source: given, Ref: ref}, true, checkRef(ref)
}

func (gitKind) check(o Origin) error {
	if _, err := parseURL(o.Source, true); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if err := checkRef(o.Ref); err != nil {
		return err
	}
	if !commitID().MatchString(o.Commit) {
		return errors.New("commit: is not a commit")
	}
	if o.Digest != "" {
		return errors.New("digest: git has commits")
	}
	return nil
}

func (gitKind) hint(e *FetchError) string {
	if errors.Is(e, errNoGit) {
		return "install git from your distribution, or give a zip archive or a directory"
	}
	if port := scpPort().FindStringSubmatch(e.Source); port != nil {
		return "a port is written as ssh://" + port[1] + ":" + port[2] + "/" + port[3]
	}
	if errors.Is(e, errHidden) {
		return "check the address; a private repository needs --credentials, or --token-env HOST=VARIABLE"
	}
	for _, known := range gitFaults {
		if known.text().MatchString(e.Error()) {
			return known.hint
		}
	}
	return "check that the address and the ref are right, and that git can fetch them without asking"
}

// gitFaults are the hints for what git prints about faults other than a wrong address or ref.
var gitFaults = []struct {
	text func() *regexp.Regexp
	hint string
}{
	{pattern.New(`Authentication failed`), "check the token, and that it may read the repository"},
	{pattern.New(`(?i)certificate|ssl_error|gnutls|tls handshake|SSL routines|SSL connect`),
		"the server is not trusted, or a proxy is in between: name the file of its authority in " +
			"GIT_SSL_CAINFO"},
	{pattern.New(`Could not resolve (host|proxy)|Failed to connect|Connection (refused|timed out)`),
		"check the network, the host and the proxy (HTTPS_PROXY)"},
	{pattern.New(`(?i)corrupt|unable to read [0-9a-f]{40}|bad (object|tree)|missing (blob|tree|commit)|` +
		`invalid index-pack|did not send all necessary objects|loose object`),
		"the repository is damaged there, so tell its owner (git fsck shows what is), or give another " +
			"copy of it"},
}

// hidden matches what git prints if a server asks for a login: many do for a repository that does not exist.
var hidden = pattern.New(`could not read (Username|Password)|terminal prompts disabled`)

// gitError returns the error of a fetch. What git advises for a repository of another user is a setting that
// is not read here: it would let the repository name programs to run.
func gitError(source string, err error) error {
	dir, isFile := strings.CutPrefix(source, "file://")
	if isFile && strings.Contains(err.Error(), "dubious ownership") {
		return refuse("copy it, and give the copy: cp -r "+dir+" mirror.git && "+
			"skillsd install file://$PWD/mirror.git",
			"the repository %s belongs to another user, and git does not read such a repository", dir)
	}
	if redirected().MatchString(err.Error()) {
		return refuse("give the address that it leads to, or --insecure-transport if you trust the network",
			"%s redirects to another address, which git does not follow over http", source)
	}
	if hidden().MatchString(err.Error()) {
		err = errHidden
	}
	return &FetchError{source, err, KindGit}
}

// errHidden is the error for a repository whose server asks for a login.
var errHidden = errors.New("the repository does not exist, or it is private and needs a login")

// redirected matches what git prints about a redirect that it does not follow.
var redirected = pattern.New(`returned error: 30[1278]`)

func (gitKind) fetch(
	ctx context.Context, p *Plan, f *fetched, access Access,
) (root skills.Root, err error) {
	p.i.progress("fetching from git", 0, 0)
	dir, err := p.sourceDir(f, KindGit, "repository", "files")
	if err != nil {
		return root, err
	}
	repo, commit, err := fetch(ctx, p.i.cfg.Git, p.i.path(dir+"/repository"), f.origin.Source,
		cmp.Or(f.origin.Commit, f.origin.Ref), access)
	if err != nil {
		return root, gitError(f.origin.Source, err)
	}
	f.origin.Commit, f.base = commit, baseName(f.origin.Source)
	into, err := p.i.root.OpenRoot(dir + "/files")
	if err != nil {
		return root, err
	}
	f.close = func() error { return errors.Join(into.Close(), p.i.root.RemoveAll(dir)) }
	out, rest, err := repo.checkout(ctx, commit, f.origin.Path, into, func(done, total int) {
		p.i.progress("files checked out", done, total)
	})
	if err != nil {
		return root, fmt.Errorf("read %s: %w", f.origin.Source, err)
	}
	f.notes = out.notes()
	root, err = f.ownRoot(p.i.path(dir + "/files"))
	if len(rest) > 0 {
		f.all = newGitTree(ctx, into, out, rest)
	}
	return root, err
}
