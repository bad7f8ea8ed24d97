package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// adopt moves the skills of the clients into the state directory and installs them from there. A skill that
// is not served afterwards, because it needs a review or has the name of another, returns to its place.
// Equal copies in directories of several clients are one skill: the others move too, and are not installed.
// The directory from which an installed skill came is no copy, since updates look for it there. Links move
// last, and only those whose skills moved.
func (s *machineSetup) adopt(ctx context.Context) error {
	lock, err := s.app.readLock()
	if err != nil {
		s.app.say("warning", err.Error())
		return err
	}
	trees := s.trees(ctx)
	var copies, links []clients.OwnSkill
	var failed error
	seen := map[string]bool{}
	for _, group := range grouped(s.own) {
		var fresh []clients.OwnSkill
		for _, skill := range group {
			same := skill.Name + " " + string(trees[skill])
			isEqual := trees[skill] != "" && (seen[same] || serves(lock, skill.Name, trees[skill]))
			switch {
			case skill.Link:
				links = append(links, skill)
			case isEqual && !cameFrom(lock, filepath.Join(skill.Dir, skill.Name)):
				copies = append(copies, skill)
			default:
				fresh = append(fresh, skill)
			}
			seen[same] = true
		}
		if len(fresh) == 0 {
			continue
		}
		dir, err := s.take(fresh)
		failed = errors.Join(failed, err)
		if dir != "" {
			failed = errors.Join(failed, s.installAdopted(ctx, dir))
		}
	}
	failed = errors.Join(failed, s.adoptCopies(copies, trees))
	failed = errors.Join(failed, s.adoptLinks(links))
	s.warnOfShadows(ctx)
	return failed
}

// trees returns the digest of the files of each skill that the clients load themselves; a skill that a scan
// refuses has none.
func (s *machineSetup) trees(ctx context.Context) map[clients.OwnSkill]digest.Digest {
	trees := map[clients.OwnSkill]digest.Digest{}
	for _, group := range grouped(s.own) {
		root := skills.Root{Dir: group[0].Dir, Tier: skills.TierUser}
		snapshot, err := config.Scan(ctx, &s.app.Process, []skills.Root{root},
			(&config.RootOptions{}).ScanOptions())
		if err != nil {
			continue // the installation reports the error
		}
		for _, skill := range group {
			sk := snapshot.Skill(skill.Name)
			if sk == nil || skill.Link {
				continue
			}
			if index, err := sk.Index(ctx); err == nil {
				trees[skill] = index.TreeDigest
			}
		}
	}
	return trees
}

// serves reports whether a skill with this name and these files is installed and served.
func serves(lock *install.Lock, name string, tree digest.Digest) bool {
	e := lock.Find(name)
	return e != nil && e.Served() && e.Tree == tree
}

// cameFrom reports whether an installed skill came from a directory.
func cameFrom(lock *install.Lock, dir string) bool {
	return slices.ContainsFunc(lock.Skills, func(e *install.Entry) bool {
		return filepath.IsAbs(e.Origin.Source) && config.Inside(dir, e.Origin.Source)
	})
}

// adoptCopies moves the equal copies of served skills, so that their clients do not load them a second time.
// A copy of a skill that is not served stays, as that skill does.
func (s *machineSetup) adoptCopies(
	copies []clients.OwnSkill, trees map[clients.OwnSkill]digest.Digest,
) error {
	lock, err := s.app.readLock()
	if err != nil {
		s.app.say("warning", err.Error())
		return err
	}
	var equal []clients.OwnSkill
	for _, skill := range copies {
		if serves(lock, skill.Name, trees[skill]) {
			equal = append(equal, skill)
			continue
		}
		s.noteStays(filepath.Join(skill.Dir, skill.Name), lock.Find(skill.Name) != nil)
	}
	var failed error
	for _, group := range grouped(equal) {
		if _, err := s.take(group); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		s.app.notef("moved %s of %s too, since skillsd serves the same files",
			report.Plural(len(group), "skill"), report.Printable(group[0].Dir))
	}
	return failed
}

// adoptLinks moves the links whose skills were moved. The clients go on to use the others.
func (s *machineSetup) adoptLinks(links []clients.OwnSkill) (failed error) {
	links = slices.DeleteFunc(links, func(link clients.OwnSkill) bool {
		return fsys.Exists(filepath.Join(link.Dir, link.Name, "SKILL.md"))
	})
	for _, group := range grouped(links) {
		_, err := s.take(group)
		failed = errors.Join(failed, err)
	}
	return failed
}

// take moves skills of one directory into a new directory, and prints why one could not be moved. It returns
// the new directory, which has the others.
func (s *machineSetup) take(group []clients.OwnSkill) (dir string, err error) {
	dir, err = s.record.Take(group)
	if err != nil {
		s.app.say("warning", err.Error())
	}
	return dir, err
}

// noteStays prints why a skill stays with its client: another with its name is installed, or it is not
// served.
func (s *machineSetup) noteStays(path string, isNamed bool) {
	if isNamed {
		s.app.notef("%s stays there: another skill with its name is installed", report.Printable(path))
		return
	}
	s.app.notef("%s stays there, and its client runs its scripts without a sandbox; to see why: %s",
		report.Printable(path),
		report.Printable(report.ShellLine("skillsd", "validate", "--lenient", path)))
}

// grouped returns skills by their directories.
func grouped(all []clients.OwnSkill) (groups [][]clients.OwnSkill) {
	for i, skill := range all {
		if i == 0 || all[i-1].Dir != skill.Dir {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], skill)
	}
	return groups
}

// installAdopted installs the skills of a directory of adopted skills, and moves the others back.
func (s *machineSetup) installAdopted(ctx context.Context, dir string) error {
	a := s.app
	request := install.Request{Source: dir, All: true, KeepGoing: true, Tier: skills.TierUser}
	err := a.carryOut(ctx, planned{
		roots:   &config.RootOptions{NoDefaults: true},
		quiet:   true,
		compute: func(i *install.Installer) (*install.Plan, error) { return i.Add(ctx, request) },
	})
	lock, unread := a.readLock()
	if unread != nil {
		return errors.Join(err, unread)
	}
	served, waiting := map[string]bool{}, []string(nil)
	for _, e := range lock.Skills {
		switch {
		case e.Origin.Source != dir:
		case e.Served():
			first, _, _ := strings.Cut(e.Origin.Path, "/")
			served[filepath.Join(dir, first)] = true
		default:
			waiting = append(waiting, e.Name)
		}
	}
	// A skill in quarantine would be in use nowhere: its client had loaded it before.
	if len(waiting) > 0 {
		err = errors.Join(err, a.carryOut(ctx, planned{
			quiet:   true,
			compute: func(i *install.Installer) (*install.Plan, error) { return i.Remove(waiting...) },
		}))
	}
	back, wrong := s.record.Return(func(m clients.Move) bool {
		return filepath.Dir(m.To) == dir && !served[m.To]
	})
	for _, move := range back {
		e := lock.Find(filepath.Base(move.From))
		s.noteStays(move.From, e != nil && e.Origin.Source != dir)
	}
	a.notef("took over %s", report.Plural(len(served), "skill"))
	return errors.Join(err, wrong)
}

// warnOfShadows names the skills that were taken over and are not used, since a directory that comes first
// has a skill with the same name.
func (s *machineSetup) warnOfShadows(ctx context.Context) {
	lock, err := s.app.readLock()
	if err != nil {
		return
	}
	reader := &config.ReaderOptions{}
	reader.Register(pflag.NewFlagSet("", pflag.ContinueOnError)) // the defaults
	snapshot, err := reader.Scan(ctx, &s.app.Process)
	if err != nil {
		return
	}
	for _, e := range lock.Skills {
		sk := snapshot.Skill(e.Name)
		if sk == nil || !e.Served() || !s.isAdopted(e) || config.Inside(sk.Root.Dir, s.state) {
			continue
		}
		s.app.notef("skillsd: warning: %s: the skill in %s is used, not the one that was taken over; remove "+
			"or rename one of them", report.Printable(e.Name),
			report.Printable(filepath.Join(sk.Root.Dir, filepath.FromSlash(sk.Dir))))
	}
}
