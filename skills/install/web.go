package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/source/signed"
	"github.com/skillsd/skillsd/skills/source/web"
)

// maxDownload is the maximum size of a downloaded archive, in bytes.
const maxDownload = 1 << 30

// archiveEnds are the extensions of archives.
var archiveEnds = []string{".zip", ".skill", ".tar.gz", ".tgz", ".tar"}

// isArchive reports whether a URL is the URL of an archive. Git repositories are not named like this in
// practice.
func isArchive(source string) bool {
	return isWeb(source) && archiveEnd(source) != ""
}

// isDownload reports whether a URL is the URL of an archive or of a SKILL.md.
func isDownload(source string) bool {
	at, err := url.Parse(source)
	return isArchive(source) || isWeb(source) && err == nil && isSkillFile(at.Path)
}

// archiveEnd returns the extension of an archive, or "".
func archiveEnd(name string) string {
	lower := strings.ToLower(name)
	for _, end := range archiveEnds {
		if strings.HasSuffix(lower, end) {
			return end
		}
	}
	return ""
}

// urlKind is an archive on a web server, or a SKILL.md alone.
type urlKind struct{ plain }

func (urlKind) resolve(given, ref string, insecure bool) (Origin, bool, error) {
	if !isDownload(given) {
		return Origin{}, false, nil
	}
	origin, err := resolveURL(given, ref, insecure)
	return origin, err == nil, err
}

func (urlKind) check(o Origin) error {
	if _, err := web.Parse(o.Source, true); err != nil || !isDownload(o.Source) {
		return errors.New("source: is not the URL of an archive or of a SKILL.md")
	}
	if o.Digest.Validate() != nil || o.Commit != "" || o.Ref != "" && o.Ref != o.Digest.String() {
		return errors.New("digest: is missing, or not the one in ref, or there is a commit")
	}
	return nil
}

// resolveURL returns the origin of an archive on a web server.
func resolveURL(given, ref string, insecure bool) (Origin, error) {
	if ref != "" {
		return Origin{}, refuse("leave it out; --sha256 pins the archive",
			"--ref goes with a git URL only")
	}
	// The checks of git URLs, and their hints, apply to any URL.
	if _, err := parseURL(given, insecure); err != nil {
		return Origin{}, err
	}
	at, err := web.Parse(given, insecure)
	if err != nil {
		return Origin{}, refuse("use an https:// URL", "%q %v", clip(given), err)
	}
	return Origin{Kind: KindURL, Source: at.String()}, nil
}

// parse parses the URL of a source on a web server.
//
// Errors: *SourceError.
func (a Access) parse(source string) (*url.URL, error) {
	at, err := web.Parse(source, a.Insecure)
	if err != nil {
		return nil, refuse("use an https:// URL, or give --insecure-transport if you trust the network",
			"%q %v", clip(source), err)
	}
	return at, nil
}

// fetch downloads an archive from a web server. If the origin has a digest, it must match.
func (urlKind) fetch(
	ctx context.Context, p *Plan, f *fetched, access Access,
) (root skills.Root, err error) {
	p.i.progress("fetching", 0, 0)
	home, err := access.parse(f.origin.Source)
	if err != nil {
		return root, err
	}
	dir, err := p.sourceDir(f, KindURL, "files")
	if err != nil {
		return root, err
	}
	if isSkillFile(home.Path) {
		return p.skillFile(ctx, f, access, home, dir+"/files")
	}
	end := archiveEnd(home.Path)
	f.base = strings.TrimSuffix(path.Base(home.Path), home.Path[len(home.Path)-len(end):])
	got, err := p.download(ctx, p.client(home, access), home, dir+"/archive", maxDownload)
	if err != nil {
		return root, err
	}
	if err := f.origin.accept(digest.Digest(got.Digest)); err != nil {
		return root, err
	}
	// Nothing is unpacked before the signature of the archive is verified.
	err = f.vouch(ctx, access, func() ([][]byte, error) {
		bundle := *home
		bundle.Path += signed.End
		var text bytes.Buffer
		if _, err := p.client(home, access).Fetch(ctx, &bundle, signed.MaxBundle, &text); err != nil {
			return nil, fetchError(&bundle, err)
		}
		return [][]byte{text.Bytes()}, nil
	})
	if err != nil {
		return root, err
	}
	if isZip(home.Path) {
		return f.zipRoot(p.i.path(dir + "/archive"))
	}
	if err := p.untar(dir+"/archive", dir+"/files", got.Size); err != nil {
		return root, err
	}
	return f.ownRoot(p.i.path(dir + "/files"))
}

// skillFile downloads a SKILL.md into a directory below the state directory. The name of the directory that
// it is in is the name of the skill, unless its frontmatter has one.
func (p *Plan) skillFile(
	ctx context.Context, f *fetched, access Access, home *url.URL, dir string,
) (root skills.Root, err error) {
	f.base = path.Base(path.Dir(home.Path))
	got, err := p.download(ctx, p.client(home, access), home, dir+"/SKILL.md", maxArtifact)
	if err != nil {
		return root, err
	}
	if got.Type == "text/html" {
		return root, refuse("give the address at which its server has the text of the file",
			"%s is a web page, not a SKILL.md", web.Shown(home))
	}
	if err := f.origin.accept(digest.Digest(got.Digest)); err != nil {
		return root, err
	}
	return f.ownRoot(p.i.path(dir))
}

// expect sets the digest that the source must have, also in later updates.
func (o *Origin) expect(want digest.Digest) error {
	switch {
	case want == "":
		return nil
	case o.Kind != KindURL && o.Kind != KindZip && o.Kind != KindTar:
		return refuse("leave it out", "--sha256 goes with an archive, or with the URL of a SKILL.md, only")
	case want.Validate() != nil || want.Algorithm() != digest.SHA256:
		return &SourceError{Reason: "--sha256: is not a SHA-256 digest of 64 hexadecimal digits"}
	}
	o.Ref = want.String()
	return nil
}

// client returns a client to download files of a source.
func (p *Plan) client(home *url.URL, access Access) *web.Client {
	return &web.Client{Home: home, Insecure: access.Insecure, Token: access.token(home), Proxy: p.i.cfg.Proxy,
		Transport: p.i.cfg.transport}
}

// accept sets the digest of the origin to the digest of the download. It returns an error if the lock file or
// the user requires another one.
func (o *Origin) accept(got digest.Digest) error {
	want := digest.Digest(cmp.Or(o.Digest.String(), o.Ref))
	if want == "" || want == got {
		o.Digest = got
		return nil
	}
	if o.Digest != "" {
		return refuse("bring the source back, or `skillsd remove` and install it anew",
			"%s does not match the lock file: digest %.19s, want %.19s", o.Source, got, want)
	}
	return o.matchesRef(got)
}

// matchesRef returns an error if a digest is not the one that the user requires.
func (o *Origin) matchesRef(got digest.Digest) error {
	want := digest.Digest(o.Ref)
	if want == got {
		return nil
	}
	return refuse("ask its publisher which digest is right; to accept another one, "+
		"`skillsd remove` the skill and install it with their --sha256",
		"%s does not match --sha256: digest %.19s, want %.19s", o.Source, got, want)
}

// download downloads a file to a path below the state directory.
func (p *Plan) download(
	ctx context.Context, c *web.Client, at *url.URL, name string, most int64,
) (*web.File, error) {
	file, err := p.i.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	got, err := c.Fetch(ctx, at, most, file)
	if closed := file.Close(); err == nil && closed != nil {
		return nil, closed
	}
	if err != nil {
		return nil, fetchError(at, err)
	}
	return got, nil
}

func fetchError(at *url.URL, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &FetchError{web.Shown(at), err, KindURL}
}

// untar extracts a downloaded tar archive.
func (p *Plan) untar(name, into string, size int64) error {
	file, err := p.i.root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return p.untarFile(file, into, size)
}

// untarFile extracts a tar archive of size bytes into a directory below the state directory.
func (p *Plan) untarFile(r io.Reader, into string, size int64) error {
	dir, err := p.i.root.OpenRoot(into)
	if err != nil {
		return err
	}
	defer dir.Close()
	return archive.Untar(r, size, dir)
}
