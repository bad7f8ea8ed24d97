package install

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source/signed"
	"github.com/skillsd/skillsd/skills/source/web"
)

// Request is what to install.
type Request struct {
	Source string      // a URL for git or of an archive, a zip archive or a directory
	Ref    string      // of git: a branch, a tag or a commit; empty: the default branch
	Subdir string      // the part of the source to look in; empty: all of it
	Name   string      // of the skill if it is one; empty: its name in the source
	Tier   skills.Tier // of those that Config.Admit does not trust more
	All    bool        // all skills of the source; otherwise there must be one
	// KeepGoing installs the skills that can be installed if others cannot.
	KeepGoing bool
	// WithRequirements also installs the skills of the source that others require. The whole source is looked
	// through; Subdir only says where the skills are that are asked for.
	WithRequirements bool
	// Digest is what the bytes of an archive of a web server must have; empty: what they have.
	Digest digest.Digest
	Access
}

// Access is how sources of other machines are fetched.
type Access struct {
	// Insecure accepts http and git URLs of other machines.
	Insecure bool
	// Tokens are those of git and web servers, by host, with the port if the URL has one. A token goes to its
	// host alone, and only over https, or to this machine.
	Tokens map[string]string
	// SignedBy must have signed what is fetched. For an update it replaces the signer of the lock file.
	SignedBy signed.Signer
	// Offered are signers of whom one may have signed what Add installs, if SignedBy is empty.
	Offered []signed.Signer
	// Verifier verifies identities.
	Verifier *signed.Verifier
	// Credentials lets git ask the credential helper of the user for the host of a source.
	Credentials bool
	// Files reads a file of a Lock from elsewhere by its digest, for Sync, which then reads those skills so
	// that need no signer; may be nil. It returns no other bytes.
	Files func(ctx context.Context, sum digest.Digest) ([]byte, error)

	all  bool  // all skills of an index
	lock *Lock // whose files Files reads
}

// token returns the token for the host of a URL.
func (a Access) token(at *url.URL) string {
	if at.Scheme != "https" && !web.IsHere(at.Hostname()) {
		return ""
	}
	return a.Tokens[strings.ToLower(at.Host)]
}

// RefusedError says that skills of a source cannot be installed, so that none is.
type RefusedError struct {
	Refused []Refusal // at least one
	Others  int       // how many could be installed
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%q: %s", clip(e.Refused[0].Path), e.Refused[0].Reason)
	if more := len(e.Refused) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// SeveralError says that a source has several skills where one was expected.
type SeveralError struct{ Paths []string }

func (e *SeveralError) Error() string {
	shown := strings.Join(e.Paths[:min(len(e.Paths), 10)], ", ")
	if len(e.Paths) > 10 {
		shown += ", …"
	}
	return fmt.Sprintf("the source has %d skills: %s", len(e.Paths), shown)
}

// Add fetches a source and makes its skills ready to be installed.
//
// Errors: *SourceError, *FetchError, *SeveralError, *RefusedError; *source.ArchiveError; errors of ctx;
// system errors. Nothing remains then.
func (i *Installer) Add(ctx context.Context, req Request) (*Plan, error) {
	origin, err := resolve(req.Source, req.Ref, req.Insecure)
	if err != nil {
		return nil, err
	}
	err = origin.expect(req.Digest)
	if err != nil {
		return nil, err
	}
	origin.Path, origin.Signer = ".", req.SignedBy
	if subdir := strings.TrimSuffix(req.Subdir, "/"); subdir != "" && subdir != "." {
		origin.Path, err = skills.CleanPath(subdir)
		if err != nil {
			return nil, &SourceError{Reason: "--subdir: " + err.Error()}
		}
		origin.Subdir = origin.Path
	}
	part, err := req.wholeOf(&origin)
	if err != nil {
		return nil, err
	}
	if req.Name != "" {
		if err := checkName(req.Name); err != nil {
			return nil, &SourceError{Reason: "--name: " + err.Error()}
		}
	}
	access := req.Access
	// Of a collection all skills are fetched, since any may be required; choose takes those of the request.
	access.all = req.All || req.WithRequirements
	return i.newPlan(func(p *Plan) (err error) {
		from, err := p.fetch(ctx, origin, access)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, from.close()) }()
		p.Notes = from.notes
		chosen, err := p.choose(from, req, part)
		if err != nil {
			return err
		}
		if req.WithRequirements {
			chosen = p.required(from, chosen)
		}
		// check can refuse more skills, but a refusal that is known already makes storing needless.
		err = p.refused(req, len(chosen))
		if err != nil {
			return err
		}
		err = p.add(ctx, from, chosen, req)
		if err != nil {
			return err
		}
		err = p.judge(ctx)
		if err != nil {
			return err
		}
		err = p.refused(req, len(p.Changes))
		return err
	})
}

// refused returns the error of a plan that installs nothing because of what it refuses.
func (p *Plan) refused(req Request, others int) error {
	if len(p.Refused) == 0 || req.KeepGoing && others > 0 {
		return nil
	}
	return &RefusedError{Refused: p.Refused, Others: others}
}

// choose returns the skills to install. The others become refusals, or notes if one was asked for.
func (p *Plan) choose(from *fetched, req Request, part string) (chosen []candidate, err error) {
	all := inPart(part, from.candidates())
	loadable := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.skill == nil })
	switch {
	case len(all) == 0:
		return nil, refuse("look at it, and name the directory with --subdir",
			"the source has no skill: no SKILL.md was found")
	case len(loadable) > 1 && !req.All:
		several := &SeveralError{}
		for _, c := range loadable {
			several.Paths = append(several.Paths, c.path)
		}
		return nil, several
	case len(loadable) > 1 && req.Name != "":
		return nil, refuse("leave it out, or name one skill with --subdir",
			"--name is for one skill, and the source has %d", len(loadable))
	}
	for _, c := range all {
		switch {
		case c.skill != nil:
			err := error(nil)
			c.name = req.Name
			if c.name == "" {
				c.name, err = from.name(c)
			}
			if err == nil {
				err = p.i.free(c, from, chosen)
			}
			if err == nil {
				chosen = append(chosen, c)
				continue
			}
			p.Refused = append(p.Refused, Refusal{Path: c.path, Reason: err.Error()})
		case len(loadable) == 1 && !req.All:
			p.Notes = append(p.Notes, fmt.Sprintf("%q does not load: %s", clip(c.path), c.err))
		default:
			p.Refused = append(p.Refused, Refusal{Path: c.path, Reason: "does not load: " + c.err})
		}
	}
	slices.SortStableFunc(p.Refused, compareRefusals)
	return chosen, nil
}

// free returns why a skill cannot have a name: the place that has it, and what resolves it.
func (i *Installer) free(c candidate, from *fetched, chosen []candidate) error {
	for _, other := range chosen {
		// Names that differ only by case are one directory on some file systems.
		if strings.EqualFold(other.name, c.name) {
			return fmt.Errorf("the name %s is that of %q in the same source; "+
				"install one with --subdir and --name", c.name, clip(other.path))
		}
	}
	if e := i.lock.clash(c.name); e != nil {
		if e.Origin.Source == from.origin.Source && e.Origin.Path == c.path {
			return fmt.Errorf("%s is installed from there already; see `skillsd update %s`", e.Name, e.Name)
		}
		return fmt.Errorf("the name %s is that of the skill installed from %s (%s); "+
			"choose another with --name", e.Name, e.Origin.Source, e.Origin.Path)
	}
	for _, tier := range skills.Tiers() {
		if _, err := i.root.Lstat(placeOf(tier, c.name)); err == nil {
			return fmt.Errorf("%s exists and is not in the lock file; "+
				"remove it, or choose another name with --name",
				path.Join(installedDir, tier.String(), c.name))
		}
	}
	return i.taken(context.Background(), nil, []string{c.name})
}

// add makes the skills ready.
func (p *Plan) add(ctx context.Context, from *fetched, chosen []candidate, req Request) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel())
	var mu sync.Mutex
	for _, c := range chosen {
		group.Go(func() error {
			origin := from.origin
			origin.Path = c.path
			index, err := c.skill.Index(ctx)
			if err == nil {
				origin.Signer, origin.Identity, err = from.signer(ctx, c.skill, index, req.Access)
			}
			if unverified, ok := errors.AsType[*unverifiedError](err); ok {
				err = unverified.refused(p.i, origin)
			}
			if refused, ok := errors.AsType[*SourceError](err); ok && len(chosen) > 1 {
				mu.Lock()
				defer mu.Unlock()
				p.Refused = append(p.Refused, Refusal{Path: c.path, Reason: refused.Error()})
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.path, err)
			}
			version, left, err := p.ready(ctx, c.skill, index, c.name, from.ownDir(c.path))
			if err != nil {
				return fmt.Errorf("%s: %w", c.path, err)
			}
			if sum, ok := from.digests[c.path]; ok {
				// Each skill of an index has a version of its own.
				origin.Subdir, origin.Digest = c.path, sum
			}
			entry := &Entry{Name: c.name, Tier: req.Tier, Enabled: true, Origin: origin,
				Tree: version.Tree, InstalledAt: version.InstalledAt, Files: version.Files}
			if tier, err := p.i.admit(origin); err == nil && req.Tier == skills.LeastTrusted() {
				entry.Tier = tier
			}
			mu.Lock()
			defer mu.Unlock()
			p.Changes = append(p.Changes, Change{Name: c.name, After: entry, Left: left})
			p.i.progress("skills stored", len(p.Changes), len(chosen))
			return nil
		})
	}
	err := group.Wait()
	// The goroutines append in any order.
	slices.SortFunc(p.Changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return err
}
