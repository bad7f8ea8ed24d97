package authoring

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/source/discovery"
	"github.com/skillsd/skillsd/skills/source/oci"
	"github.com/skillsd/skillsd/skills/source/plugin"
	"github.com/skillsd/skillsd/skills/source/web"
)

// Published is the output of `skillsd publish --json` for a registry or a cluster.
type Published struct {
	Reference string                `json:"reference"` // with the tag, or the URL of a cluster
	Digest    digest.Digest         `json:"digest"`    // of the tag's target, or of the lock file
	Skills    []*discovery.Artifact `json:"skills"`    // file is the reference of each, by its digest
}

// Publisher publishes the skills of a directory: one skill, or all below it. The errors of its methods are
// *exit.Error, or errors of writing.
type Publisher struct {
	Proxy func(*url.URL) (*url.URL, error) // for registries
	Login oci.Login
	Warn  func(text string) // of a published file that looks secret
}

// ArchiveName returns the name of an archive, for a name with another extension or none.
func ArchiveName(name string) string {
	for _, end := range []string{".zip", ".skill", ".tgz", ".tar", ".gz"} {
		name = strings.TrimSuffix(name, end)
	}
	return strings.TrimRight(name, "/") + ".tar.gz"
}

// Push publishes skills in a registry, by a reference such as oci://host/skill:1.0.
func (p *Publisher) Push(ctx context.Context, dir, to string) (*Published, error) {
	repository, tag, err := oci.Parse(to)
	if err != nil {
		return nil, exit.Usagef("give a reference such as oci://host/skill:1.0", "%q %v", to, err)
	}
	made := &Published{Reference: repository + ":" + tag}
	packs, err := p.packAll(ctx, dir, made)
	if err != nil {
		return nil, err
	}
	home, err := oci.Home(repository)
	if err != nil {
		return nil, err
	}
	client := (&web.Client{Home: home, Proxy: p.Proxy}).HTTP()
	defer client.CloseIdleConnections()
	registry, err := oci.Open(repository, client, p.Login)
	if err == nil {
		made.Digest, err = registry.Publish(ctx, packs, tag)
	}
	if err != nil {
		failed := &install.FetchError{Source: repository, Err: err, Kind: install.KindOCI}
		return nil, installing.Failure(failed)
	}
	for _, one := range made.Skills {
		one.File = repository + "@" + one.Digest.String()
	}
	return made, nil
}

// packAll packs the skills of a directory, and adds them to what is published.
func (p *Publisher) packAll(
	ctx context.Context, dir string, made *Published,
) (packs []*oci.Packed, err error) {
	list, err := discovery.Scan(ctx, dir)
	if err != nil {
		return nil, unpublished(dir, err)
	}
	for _, sk := range list {
		data, artifact, err := discovery.Pack(ctx, sk)
		if err != nil {
			return nil, unpublished(dir, err)
		}
		p.warnSecret(ctx, sk)
		// A collection names its skills, and an installer could not choose between two.
		for _, other := range made.Skills {
			if other.Name == artifact.Name {
				return nil, unpublished(dir, fmt.Errorf("%s is the name of two skills", artifact.Name))
			}
		}
		made.Skills = append(made.Skills, artifact)
		packs = append(packs, &oci.Packed{Artifact: artifact, Data: data, Description: sk.Description(),
			Version: sk.Frontmatter.Version})
	}
	return packs, nil
}

// Pack writes the archive of one skill into a file; the default of the file is NAME.tar.gz.
func (p *Publisher) Pack(ctx context.Context, dir, file string) (*discovery.Artifact, error) {
	list, err := discovery.Scan(ctx, dir)
	if err != nil {
		return nil, unpublished(dir, err)
	}
	if len(list) > 1 {
		return nil, exit.Usagef("give the directory of one; --site and oci:// publish all of them",
			"%s has %d skills", dir, len(list))
	}
	data, made, err := discovery.Pack(ctx, list[0])
	if err != nil {
		return nil, unpublished(dir, err)
	}
	p.warnSecret(ctx, list[0])
	made.File = file
	if file == "" {
		made.File = made.Name + ".tar.gz"
	}
	next := filepath.Join(dir, "..", filepath.Base(made.File))
	if err := outside(dir, made.File, report.ShellLine("skillsd", "publish", dir, next)); err != nil {
		return nil, err
	}
	return made, discovery.Write(made.File, data)
}

// warnSecret warns of the files of a published skill that look secret.
func (p *Publisher) warnSecret(ctx context.Context, sk *skills.Skill) {
	index, err := sk.Index(ctx)
	if err != nil {
		return // the publication has failed
	}
	for _, d := range index.Diagnostics {
		if d.Code == skills.CodeSecretFile {
			p.Warn(report.JoinPath(sk.Path, d.Path) + " is published, and " + d.Detail + "; " + d.Fix())
		}
	}
}

// Site writes the files of a web site.
func (p *Publisher) Site(ctx context.Context, dir, site string) ([]*discovery.Artifact, error) {
	err := outside(dir, filepath.Join(site, filepath.Dir(filepath.FromSlash(discovery.Path))),
		"give another --site, outside of "+dir)
	if err != nil {
		return nil, err
	}
	list, err := discovery.Scan(ctx, dir)
	if err != nil {
		return nil, unpublished(dir, err)
	}
	made, err := discovery.Publish(ctx, list, site)
	if err != nil {
		return nil, unpublished(dir, err)
	}
	for _, sk := range list {
		p.warnSecret(ctx, sk)
	}
	return made, nil
}

// Plugin writes the manifests by which clients install a directory of skills as a plugin. It completes made
// by the skills, and returns the paths of the manifests.
//
// Errors: as for [Publisher].
func Plugin(ctx context.Context, dir string, made *plugin.Published) (files []string, err error) {
	list, err := discovery.Scan(ctx, dir)
	if err != nil {
		return nil, unpublished(dir, err)
	}
	for _, sk := range list {
		made.Skills = append(made.Skills, sk.Dir)
	}
	made.Description = report.Plural(len(list), "skill") + ": " + report.OneLine(list[0].Description())
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	names, err := plugin.Write(root, made)
	if err != nil {
		return nil, exit.Errorf(exit.Failure, "", "%s: %w", report.Printable(dir), err)
	}
	for _, name := range names {
		files = append(files, filepath.Join(dir, filepath.FromSlash(name)))
	}
	return files, nil
}

// outside rejects an output path inside the published directory, which the next publication would include.
func outside(dir, file, hint string) error {
	if !config.Inside(file, dir) {
		return nil
	}
	return exit.Usagef(hint, "%s lies in %s, so that the next time it would be published too",
		report.Printable(file), report.Printable(dir))
}

// unpublished adds a hint to the error for a skill that cannot be published.
func unpublished(dir string, err error) error {
	hint := exit.SystemHint(err)
	if hint == "" {
		hint = "see what is wrong: " + report.ShellLine("skillsd", "validate", dir)
	}
	return exit.Errorf(exit.Failure, hint, "%s", report.Printable(fmt.Sprintf("%s: %v", dir, err)))
}
