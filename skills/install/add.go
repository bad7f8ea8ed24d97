package install

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source/signed"
	"github.com/skillsd/skillsd/skills/source/web"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Request describes what Add installs.
type Request struct {
	// Source is a URL for git, of an archive or of an index, a reference to a registry, an MCP server, a path
	// of a zip archive or a directory; or one of the forms in which people write these, see readAddress.
	Source string
	Ref    string      // for git: a branch, a tag or a commit; empty: the default branch
	Subdir string      // the part of the source to look in; empty: all of it
	Name   string      // of a single skill; empty: its name in the source
	Tier   skills.Tier // unless Config.Admit gives a more trusted one
	All    bool        // all skills of the source
	// Plugin is the plugin whose skills are installed, by its name in the source; empty: any.
	Plugin string
	// Skills are the skills to install, by the names of their directories or their own. Without them and All,
	// exactly one is expected.
	Skills []string
	// KeepGoing installs the skills that can be installed if others cannot. Skills that do not load, or that
	// policy.Arrival refuses, never stop a request for all of a source or of a plugin; with KeepGoing they
	// are refusals too.
	KeepGoing bool
	// WithRequirements also installs the skills of the source that the requested ones require. The whole
	// source is searched for them; Subdir limits only where the requested skills are.
	WithRequirements bool
	// Digest is the expected digest of an archive; empty: any.
	Digest digest.Digest
	Access

	shown string       // the file or directory of the page that the address is of; empty: none, or all
	orRef string       // one of Skills that may be a ref instead; empty: none
	of    *PluginFacts // the plugin that the source is in a marketplace elsewhere; nil: none
}

// Access holds what is needed to fetch and verify sources.
type Access struct {
	// Insecure accepts http and git URLs of other machines.
	Insecure bool
	// Tokens are the tokens for git and web servers, by host, with the port if the URL names one. A token is
	// sent to its host alone, over https or to this machine.
	Tokens map[string]string
	// SignedBy is the required signer of what is fetched. For an update it replaces the signer of the lock
	// file.
	SignedBy signed.Signer
	// Offered lists signers that Add accepts if SignedBy is empty. A source need not be signed by any of
	// them.
	Offered []signed.Signer
	// Verifier verifies identities.
	Verifier *signed.Verifier
	// Credentials lets git ask the user's credential helper for the host of a source.
	Credentials bool
	// Files returns the file with a digest, for Sync with a Lock from another machine. Skills that need no
	// signer are then read this way; may be nil. It must verify the digest.
	Files func(ctx context.Context, sum digest.Digest) ([]byte, error)

	all   bool     // fetch all skills of an index
	named []string // fetch only these skills of an index; empty: any
	lock  *Lock    // the lock file whose files Files returns
}

// token returns the token for the host of a URL.
func (a Access) token(at *url.URL) string {
	if !web.IsProtected(at) {
		return ""
	}
	// A lock file from elsewhere could lead a token to its own host if the token were not bound to one.
	return a.Tokens[strings.ToLower(at.Host)]
}

// RefusedError reports skills of a source that cannot be installed; none of the source is installed.
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

// SeveralError reports a source with several skills where one was expected.
type SeveralError struct {
	Paths   []string
	Plugins []PluginRow // with skills; empty if the source declares none
}

func (e *SeveralError) Error() string {
	return fmt.Sprintf("the source has %d skills: %s", len(e.Paths), listed(e.Paths, ""))
}

// Add fetches a source and makes its skills ready to be installed.
//
// Errors: *SourceError, *FetchError, *SeveralError, *RefusedError; *archive.Error; errors of ctx;
// system errors. On an error, nothing remains on disk.
func (i *Installer) Add(ctx context.Context, req Request) (*Plan, error) {
	if req.Name != "" {
		if err := checkName(req.Name); err != nil {
			return nil, &SourceError{Reason: "--name: " + err.Error()}
		}
	}
	return i.newPlan(func(p *Plan) error {
		req, err := p.locate(ctx, req)
		if err != nil {
			return err
		}
		return p.addAll(ctx, req)
	})
}

// addAll fetches the source of a request in full, and stages the skills that the request chooses.
func (p *Plan) addAll(ctx context.Context, req Request) (err error) {
	from, part, err := p.fetchFor(ctx, req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	other, err := p.redirect(ctx, from, req)
	if err != nil {
		return err
	}
	if other != nil {
		return p.addAll(ctx, *other)
	}
	p.Notes, p.whole = from.notes, req.whole() && !req.KeepGoing
	for _, problem := range from.plugins.Problems[:min(len(from.plugins.Problems), maxListed)] {
		p.notef("%s", problem)
	}
	chosen, err := p.choose(ctx, from, req, part)
	if err != nil {
		return err
	}
	if req.WithRequirements {
		chosen = p.required(ctx, from, chosen)
	}
	if note := leftovers(chosen); note != "" {
		p.notef("%s", note)
	}
	if !req.All {
		if err := p.mentioned(ctx, from, chosen); err != nil {
			return err
		}
	}
	// judge can refuse more skills, but after a refusal there is no need to store anything.
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
	return p.refused(req, len(p.Changes))
}

// fetchFor fetches the source of a request in full. part is the part of it with the requested skills; empty:
// all that was fetched.
func (p *Plan) fetchFor(ctx context.Context, req Request) (from *fetched, part string, err error) {
	origin, err := req.origin()
	if err != nil {
		return nil, "", err
	}
	part, err = req.wholeOf(&origin)
	if err != nil {
		return nil, "", err
	}
	access := req.Access
	// Any skill of a collection may be required, so all are fetched; choose then picks the requested ones.
	access.all = req.All || req.WithRequirements || len(req.Skills) > 0
	if !req.WithRequirements {
		access.named = req.Skills
	}
	from, err = p.fetch(ctx, origin, access)
	return from, part, err
}

// redirect returns the request that is meant if the source of a request shows that it means another one: a
// plugin that is in another source, the skill that a page shows a part of, or a ref in the place of a skill.
// It returns nil if the request means what it has.
//
// Errors: *SourceError if the page shows a SKILL.md that does not exist, or the other source may not be used;
// *FetchError; errors of ctx.
func (p *Plan) redirect(ctx context.Context, from *fetched, req Request) (*Request, error) {
	if remote := from.remote(req.Plugin); remote != nil {
		return p.remoteRequest(req, remote)
	}
	dir, err := from.above(req.shown)
	if err != nil {
		return nil, err
	}
	other, name := req, req.orRef
	other.shown = ""
	if dir != "" {
		other.Subdir = dir
		return &other, nil
	}
	isRef, err := p.isRef(ctx, from, name, req.Access)
	if err != nil || !isRef {
		return nil, err
	}
	other.Ref, other.orRef = name, ""
	other.Skills = slices.DeleteFunc(slices.Clone(req.Skills), func(s string) bool { return s == name })
	p.i.located(name, other)
	return &other, nil
}

// above returns the directory of the skill that a file or a directory of the source is a part of, or "" if
// the source has skills where it was scanned.
//
// Errors: *SourceError for a SKILL.md that does not exist.
func (f *fetched) above(shown string) (string, error) {
	if shown == "" {
		return "", nil
	}
	if _, err := f.all.Lstat(shown); err != nil && isSkillFile(shown) {
		return "", refuse("copy the address again, or give the address of the repository",
			"the source has no file %q", clip(shown))
	}
	if len(f.listed().all) > 0 {
		return "", nil
	}
	for dir := path.Dir(shown); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if _, err := f.all.Lstat(path.Join(dir, "SKILL.md")); err == nil {
			return dir, nil
		}
	}
	return "", nil
}

// isRef reports whether a branch or a tag of a source has a name, and none of its skills.
//
// Errors: *FetchError; errors of ctx; system errors.
func (p *Plan) isRef(ctx context.Context, from *fetched, name string, access Access) (bool, error) {
	if name == "" || checkRef(name) != nil || len(from.withName(from.candidates(), name)) > 0 {
		return false, nil
	}
	refs, _, err := p.refs(ctx, from.origin.Source, access)
	return err == nil && slices.Contains(refs, name), err
}

// origin returns the origin of the source of a request in full.
func (r *Request) origin() (Origin, error) {
	origin, err := resolve(r.Source, r.Ref, r.Insecure)
	if err != nil {
		return origin, err
	}
	err = origin.expect(r.Digest)
	if err != nil {
		return origin, err
	}
	origin.Path, origin.Signer = ".", r.SignedBy
	subdir := strings.TrimSuffix(r.Subdir, "/")
	if subdir == "" || subdir == "." {
		return origin, nil
	}
	origin.Path, err = skills.CleanPath(subdir)
	if err != nil {
		return origin, &SourceError{Reason: "--subdir: " + err.Error()}
	}
	origin.Subdir = origin.Path
	return origin, nil
}

// refused returns a RefusedError if a refused skill stops the whole plan: without KeepGoing, or if none is
// left.
func (p *Plan) refused(req Request, others int) error {
	// A request that installs nothing must fail, and the skills that were left out are the reason.
	if others == 0 && p.there == 0 {
		p.Refused, p.LeftOut = append(p.Refused, p.LeftOut...), nil
		p.sortRefusals()
	}
	if len(p.Refused) == 0 || req.KeepGoing && others > 0 {
		return nil
	}
	return &RefusedError{Refused: p.Refused, Others: others}
}

// whole reports whether a request is for all skills of a source or of a plugin.
func (r *Request) whole() bool { return r.All || r.Plugin != "" }

// choose returns the skills to install. Each other skill becomes a refusal, a note if one skill was requested
// without its name, or is left out if all were.
func (p *Plan) choose(
	ctx context.Context, from *fetched, req Request, part string,
) (chosen []candidate, err error) {
	all, err := from.ofPlugin(req.Plugin, inPart(part, from.candidates()))
	if err != nil {
		return nil, err
	}
	for n, c := range all {
		all[n] = from.inPlugin(c, req.of)
	}
	loadable := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.skill == nil })
	others := all
	all, err = p.requested(ctx, from, req, all, loadable)
	if err != nil {
		return nil, err
	}
	if req.whole() {
		all, err = p.distinct(ctx, from, all)
		if err != nil {
			return nil, err
		}
	}
	for _, c := range all {
		switch {
		case (len(req.Skills) > 1 || req.WithRequirements) && p.i.lock.from(from.origin, c.path) != nil:
			p.notef("%q is installed already; see `skillsd update`", clip(c.path))
			if req.WithRequirements {
				p.present = append(p.present, c)
			}
		case c.skill != nil:
			c, err := p.nameFor(ctx, c, req.Name, from, others, chosen)
			if err != nil {
				p.Refused = append(p.Refused, Refusal{Path: c.path, Reason: err.Error()})
				continue
			}
			chosen = append(chosen, c)
		// One skill was requested and found, so the command succeeds although another one is broken.
		case len(loadable) == 1 && !req.whole() && len(req.Skills) == 0:
			p.notef("%q %s", clip(c.path), c.err)
		default:
			p.pass(c)
		}
	}
	p.sortRefusals()
	return chosen, nil
}

// pass refuses a candidate that does not load, or leaves it out of all.
func (p *Plan) pass(c candidate) {
	if c.failed {
		p.Refused = append(p.Refused, c.refusal())
		return
	}
	// One broken SKILL.md kept 244 other skills of a public repository from being installed.
	p.leave(c.refusal())
}

// refusal is the refusal of a candidate that cannot be installed.
func (c *candidate) refusal() Refusal {
	return Refusal{Path: c.path, Reason: c.err}
}

// requested returns the candidates that a request is about: all, or those that it names.
//
// Errors: *SourceError; *SeveralError if the source has several skills and the request is about one.
func (p *Plan) requested(
	ctx context.Context, from *fetched, req Request, all, loadable []candidate,
) ([]candidate, error) {
	switch {
	case len(all) == 0:
		return nil, from.noCandidate(req)
	case len(req.Skills) > 1 && req.Name != "":
		return nil, refuse("leave it out", "--name is for one skill, and %d are named", len(req.Skills))
	case len(req.Skills) > 0:
		return p.named(ctx, from, all, req.Skills)
	case len(loadable) > 1 && !req.whole():
		several := &SeveralError{Plugins: from.pluginRows(all)}
		for _, c := range loadable {
			several.Paths = append(several.Paths, c.path)
		}
		return nil, several
	case len(loadable) > 1 && req.Name != "":
		return nil, refuse("leave it out, or name one skill with --subdir",
			"--name is for one skill, and the source has %d", len(loadable))
	}
	return all, nil
}

// noCandidate returns the error for a request without a candidate.
func (f *fetched) noCandidate(req Request) error {
	away := slices.DeleteFunc(f.pluginRows(nil), func(row PluginRow) bool { return row.Remote == "" })
	switch {
	case req.Plugin == "" && len(away) > 0:
		if len(req.Skills) == 1 && f.plugins.Find(req.Skills[0]) != nil {
			return f.noSkill(nil, req.Skills[0])
		}
		names := make([]string, len(away))
		for n, row := range away {
			names[n] = row.Name
		}
		return refuse("give --plugin NAME; it has "+listed(names, ""),
			"the source has no skill of its own: it lists plugins of other sources")
	case f.isBare():
		return refuse("give file://"+filepath.ToSlash(f.origin.Source), "%q is a git repository",
			clip(f.origin.Source))
	case req.Plugin != "":
		return refuse("only skills are installed: choose another plugin",
			"the source has no skill: %s", f.without(req.Plugin))
	}
	return refuse("look at it, and name the directory with --subdir", "the source has no skill: %s",
		f.without(""))
}

// isBare reports whether a directory is a git repository without a work tree.
func (f *fetched) isBare() bool {
	if f.origin.Kind != KindDirectory {
		return false
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := f.all.Lstat(name); err != nil {
			return false
		}
	}
	return true
}

// named returns the candidates with some names: of their directories or their own, with the plugin in front
// or without, or at some paths. Of several with one name it takes the first by rank.
//
// Errors: *SourceError for a name that no candidate has, or several of the same rank.
func (p *Plan) named(
	ctx context.Context, from *fetched, all []candidate, names []string,
) (chosen []candidate, err error) {
	for _, name := range names {
		found := from.withName(all, name)
		if len(found) == 0 {
			return nil, from.noSkill(all, name)
		}
		one, others, err := from.only(ctx, found)
		if err != nil {
			return nil, err
		}
		// Among places of one rank, nothing shows which copy the authors mean.
		if len(others) > 0 && rank(others[0].path) == rank(one.path) {
			return nil, refuse("give the path of one: "+pathsOf(found),
				"the source has %d skills %q", len(found), clip(name))
		}
		if len(others) > 0 {
			p.notef("the source has %d skills %q; %q is taken, not %s", len(others)+1, clip(name),
				clip(one.path), pathsOf(others))
		}
		if !slices.ContainsFunc(chosen, func(c candidate) bool { return c.path == one.path }) {
			chosen = append(chosen, one)
		}
	}
	return chosen, nil
}

// noSkill returns the error for a name that no candidate has.
func (f *fetched) noSkill(all []candidate, name string) error {
	if of := f.plugins.Find(name); of != nil {
		return refuse("give --plugin "+clip(of.Name),
			"the source has no skill %q: that is a plugin", clip(name))
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, compareRanks)
	var known, paths []string
	for _, c := range all {
		known, paths = append(known, path.Base(c.path)), append(paths, c.path)
		if c.skill != nil {
			known, paths = append(known, c.skill.Frontmatter.Name), append(paths, c.path)
		}
	}
	return refuse("it has "+nearestFirst(name, known, paths), "the source has no skill %q", clip(name))
}

// nearestFirst lists words, and first those whose keys are most similar to a name.
func nearestFirst(name string, keys, words []string) string {
	// The time of a comparison grows with the product of the lengths.
	const longest = 64
	limit := 1 + len(name)/3
	type near struct {
		word     string
		distance int
	}
	all := make([]near, len(words))
	for n, key := range keys {
		all[n] = near{words[n], limit + 1}
		if max(len(key), len(name)) <= longest {
			typed, known := []rune(strings.ToLower(name)), []rune(strings.ToLower(key))
			all[n].distance = min(skills.EditDistance(typed, known, limit), limit+1)
		}
	}
	slices.SortStableFunc(all, func(a, b near) int { return a.distance - b.distance })
	var sorted []string
	for _, one := range all {
		if !slices.Contains(sorted, one.word) {
			sorted = append(sorted, one.word)
		}
	}
	return listed(sorted, "none")
}

// withName returns the candidate at a path, or else those with a name. The plugin may be in front, as in
// figma:figma-use and figma/figma-use, and so may a directory above, as in the names of skills whose own name
// others have, or the last directories of the path.
func (f *fetched) withName(all []candidate, name string) (found []candidate) {
	name = strings.Trim(name, "/")
	group, own, inGroup := strings.Cut(name, ":")
	if !inGroup {
		group, own, inGroup = strings.Cut(name, "/")
	}
	of := f.plugins.Find(group)
	for _, c := range all {
		if c.path == name {
			return []candidate{c}
		}
		isNamed := func(name string) bool {
			// A dry run shows the name that the skill would get.
			return c.called(name) || c.skill != nil && f.name(c) == name
		}
		switch {
		case inGroup && of != nil && c.isOf(of) && isNamed(own):
			// Several plugins may list the skill, and an update keeps it in the plugin that the user named.
			c.plugin = of
			found = append(found, c)
		case isNamed(name),
			inGroup && isNamed(own) && slices.Contains(strings.Split(path.Dir(c.path), "/"), group),
			inGroup && strings.HasSuffix(c.path, "/"+name):
			found = append(found, c)
		}
	}
	return found
}

// pathsOf lists the paths of candidates.
func pathsOf(all []candidate) string {
	paths := make([]string, len(all))
	for n, c := range all {
		paths[n] = c.path
	}
	return listed(paths, "none")
}

// maxListed is the maximum number of names in a message.
const maxListed = 10

// listed joins names, maxListed at most; it returns none for an empty list.
func listed(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	text := strings.Join(names[:min(len(names), maxListed)], ", ")
	if more := len(names) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// nameFor sets the name under which a candidate is installed: want, or if empty its name among all of the
// source. It returns an error if the name cannot be used.
func (p *Plan) nameFor(
	ctx context.Context, c candidate, want string, from *fetched, all, chosen []candidate,
) (candidate, error) {
	if want != "" {
		c.name = want
	}
	if c.name == "" {
		named, err := from.nameAmong(ctx, c, all)
		if err != nil {
			return c, err
		}
		c = named
	}
	return c, p.i.free(ctx, c, from, chosen)
}

// free returns an error if the name of a candidate is in use, with the skill that uses it and a remedy.
func (i *Installer) free(ctx context.Context, c candidate, from *fetched, chosen []candidate) error {
	for _, other := range chosen {
		if clashes(other.name, c.name) {
			return fmt.Errorf("the name %s is used by %q in the same source too; "+
				"install one with --subdir and --name", c.name, clip(other.path))
		}
	}
	if e := i.lock.clash(c.name); e != nil {
		if e.Origin.Source == from.origin.Source && e.Origin.Path == c.path {
			return fmt.Errorf("%s is installed from there already; see `skillsd update %s`", e.Name, e.Name)
		}
		return fmt.Errorf("the name %s is used by the skill installed from %s (%s); "+
			"choose another with --name", e.Name, e.Origin.Source, e.Origin.Path)
	}
	for _, tier := range skills.Tiers() {
		// move would refuse the directory too, but only after all skills were stored.
		if fsys.ExistsIn(i.root, servedDir(tier, c.name)) {
			return fmt.Errorf("%s exists and is not in the lock file; "+
				"remove it, or choose another name with --name",
				path.Join(installedDir, tier.String(), c.name))
		}
	}
	return i.taken(ctx, nil, []string{c.name})
}

// add stores the chosen skills and records a change for each.
func (p *Plan) add(ctx context.Context, from *fetched, chosen []candidate, req Request) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel())
	var mu sync.Mutex
	for _, c := range chosen {
		group.Go(func() error {
			origin := from.origin
			origin.Path = c.path
			files, err := from.linked(ctx, c.skill)
			if err != nil {
				return fmt.Errorf("%s: %w", c.path, err)
			}
			origin.Signer, origin.Identity, err = from.signer(ctx, files, req.Access)
			if unverified, ok := errors.AsType[*unverifiedError](err); ok {
				// The signature exists, and a refusal by the configuration alone would report it as missing.
				err = unverified.refused(p.i, origin)
			}
			// One of several skills is refused alone; refused then decides whether the plan goes on.
			if refused, ok := errors.AsType[*SourceError](err); ok && len(chosen) > 1 {
				mu.Lock()
				defer mu.Unlock()
				p.Refused = append(p.Refused, Refusal{Path: c.path, Reason: refused.Error()})
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.path, err)
			}
			change, files, err := p.stageNew(ctx, from, c, origin, req.Tier)
			if err != nil {
				return fmt.Errorf("%s: %w", c.path, err)
			}
			mu.Lock()
			defer mu.Unlock()
			p.elsewhere = append(p.elsewhere, files)
			p.Changes = append(p.Changes, change)
			p.i.progress("skills stored", len(p.Changes), len(chosen))
			return nil
		})
	}
	err := group.Wait()
	p.noteTaken()
	// The goroutines append in any order.
	slices.SortFunc(p.Changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return err
}

// stageNew stores and stages a chosen skill, whose signature was verified for its origin. It returns the
// change that installs it, with the contents.
func (p *Plan) stageNew(
	ctx context.Context, from *fetched, c candidate, origin Origin, tier skills.Tier,
) (Change, *contents, error) {
	files, err := from.contents(ctx, c.skill, c.plugin, origin.Signer != "")
	if err != nil {
		return Change{}, nil, err
	}
	version, left, err := p.ready(ctx, from, files, c.name, from.ownDir(c.path))
	if err != nil {
		return Change{}, nil, err
	}
	if sum, ok := from.digests[c.path]; ok {
		// Each skill of an index has its own version.
		origin.Subdir, origin.Digest = c.path, sum
	}
	// A tier that is more trusted than the default one is an explicit choice of the request.
	if admitted, err := p.i.admit(origin); err == nil && tier == skills.LeastTrusted() {
		tier = admitted
	}
	entry := &Entry{Name: c.name, Tier: tier, Enabled: true, Origin: origin, Plugin: factsOf(c.plugin),
		Tree: version.Tree, InstalledAt: version.InstalledAt, Files: version.Files, Taken: version.Taken}
	return Change{Name: c.name, After: entry, Left: left}, files, nil
}
