package install

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// refuse takes from a plan the skills in which others lie whose path is taken.
func (p *Plan) refuse() (refused []Refusal) {
	paths := pathsByName(p.Snapshot)
	var kept []*Entry
	for _, e := range p.Entries {
		err := p.stage.i.taken(paths[e.Name], nil)
		if err == nil {
			kept = append(kept, e)
			continue
		}
		reason := err.Error()
		if err := p.stage.i.root.RemoveAll(p.stage.placed(e.Name)); err != nil {
			reason += "; " + err.Error()
		}
		refused = append(refused, Refusal{e.Origin.Path, reason})
	}
	p.Entries = kept
	return refused
}

// scan reads the skills of a stage as they will be served.
func (s *stage) scan(ctx context.Context) (*skills.Snapshot, error) {
	return skills.Scan(ctx, []skills.Root{{Dir: s.path("place"), Tier: skills.TierThirdParty}}, &skills.ScanOptions{MaxDirs: maxSourceDirs, StrictRoots: true})
}

// pathsByName are the paths of skills by the name of the installed one that they lie in, or are.
func pathsByName(snapshot *skills.Snapshot) map[string][]string {
	paths := map[string][]string{}
	for _, sk := range slices.Concat(snapshot.Skills, snapshot.Withheld) {
		name, _, _ := strings.Cut(sk.Path, "/")
		paths[name] = append(paths[name], sk.Path)
	}
	return paths
}

// taken returns why a skill cannot have paths, with the place of the one that has it.
func (i *Installer) taken(paths []string, known map[string]bool) error {
	if i.cfg.Taken == nil {
		return nil
	}
	for _, at := range paths {
		if known[at] {
			continue
		}
		if place := i.cfg.Taken(at); place != "" {
			return fmt.Errorf("the path %s is that of the skill in %s; choose another with --name", at, place)
		}
	}
	return nil
}

// takenSince is taken for another version of an installed skill: the paths that it has already it
// keeps.
func (i *Installer) takenSince(ctx context.Context, before *Entry, paths []string) error {
	err := i.taken(paths, map[string]bool{before.Name: true})
	if err == nil || !before.Enabled {
		return err
	}
	place := filepath.Join(i.cfg.State, filepath.FromSlash(placeOf(before.Tier, before.Name)))
	snapshot, failed := skills.Scan(ctx, []skills.Root{{Dir: place, Tier: before.Tier}}, &skills.ScanOptions{StrictRoots: true})
	if failed != nil {
		return err
	}
	known := map[string]bool{}
	for _, sk := range snapshot.Skills {
		known[path.Join(before.Name, sk.Dir)] = true
	}
	return i.taken(paths, known)
}
