package skills

import "slices"

// keepRoot keeps what the scan before found in a root that cannot be read any more, and reports
// whether it could be read then.
func (s *scanner) keepRoot(root *Root, err error) bool {
	if !s.keep(func(a *area) bool { return a.root == root && !a.linked }) {
		return false
	}
	s.lost = append(s.lost, root)
	s.note(Error, CodeUnreadableRoot, root.Dir, "the root cannot be read: %v; its skills stay as they were", cause(err))
	return true
}

// keepLinked keeps what links in lost roots led to. Like every link they come after the roots.
func (s *scanner) keepLinked() {
	s.keep(func(a *area) bool { return a.linked && slices.Contains(s.lost, a.root) })
}

// keep takes over the walks of some areas from the scan before, and reports whether there are any.
func (s *scanner) keep(wanted func(a *area) bool) bool {
	if s.before == nil || s.before.survey == nil {
		return false
	}
	found, any := s.before.scanned, false
	for _, w := range s.before.survey.walks {
		mine := found[:w.found]
		found = found[w.found:]
		if !wanted(w.area) {
			continue
		}
		any = true
		s.walks, s.found = append(s.walks, w), append(s.found, mine...)
		if dir := w.area.onDisk(); dir != "" {
			s.walked = append(s.walked, dir)
		}
		for _, n := range s.before.survey.notes {
			if n.area == w.area {
				s.notes = append(s.notes, n)
			}
		}
	}
	return any
}
