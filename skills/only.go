package skills

import "slices"

// Only returns the part of a snapshot that consists of the skills of some paths. What it holds of
// others it does not tell: neither diagnostics nor skills that are shadowed or withheld. Paths that
// no skill has are left out.
func (s *Snapshot) Only(paths []string) *Snapshot {
	part := &Snapshot{Roots: s.Roots, GeneratedAt: s.GeneratedAt, opts: s.opts, statuses: s.statuses,
		byPath: make(map[string]*Skill, len(paths)), byName: make(map[string][]*Skill, len(paths))}
	sorted := slices.Sorted(slices.Values(paths))
	for _, path := range slices.Compact(sorted) {
		sk := s.Skill(path)
		if sk == nil {
			continue
		}
		part.Skills = append(part.Skills, sk)
		part.byPath[path] = sk
		part.byName[sk.name] = append(part.byName[sk.name], sk)
	}
	return part
}
