package skills

import "encoding/binary"

// packedWriter encodes values without names or types, for files that only this program reads: each text
// preceded by its length.
type packedWriter []byte

// Number writes a number from 0 to 1<<28 - 1.
func (p *packedWriter) Number(n int) { *p = binary.AppendUvarint(*p, uint64(n)) }

// Text writes texts.
func (p *packedWriter) Text(texts ...string) {
	for _, s := range texts {
		p.Number(len(s))
		*p = append(*p, s...)
	}
}

// List writes a list, and distinguishes nil from an empty one.
func (p *packedWriter) List(list []string) {
	if list == nil {
		p.Number(0)
		return
	}
	p.Number(len(list) + 1)
	p.Text(list...)
}

// Flags writes up to 28 flags as one number.
func (p *packedWriter) Flags(flags ...bool) {
	set := 0
	for i, flag := range flags {
		if flag {
			set |= 1 << i
		}
	}
	p.Number(set)
}

// packedReader decodes the output of a packedWriter. Its results alias the text.
type packedReader struct {
	Rest string // the unread rest
	Bad  bool   // set if the text is malformed, and never cleared
}

// Number reads a number.
func (u *packedReader) Number() int {
	n, shift := uint64(0), 0
	for i := range len(u.Rest) {
		c := u.Rest[i]
		n |= uint64(c&0x7f) << shift
		shift += 7
		// No valid number is longer, and without a bound a damaged one would overflow int on 32-bit systems.
		if shift > 28 {
			break
		}
		if c < 0x80 {
			u.Rest = u.Rest[i+1:]
			return int(n)
		}
	}
	u.Bad, u.Rest = true, ""
	return 0
}

// Text reads a text.
func (u *packedReader) Text() string {
	n := u.Number()
	if n > len(u.Rest) {
		u.Bad, u.Rest = true, ""
		return ""
	}
	s := u.Rest[:n]
	u.Rest = u.Rest[n:]
	return s
}

// Texts reads texts.
func (u *packedReader) Texts(to ...*string) {
	for _, s := range to {
		*s = u.Text()
	}
}

// List reads a list.
func (u *packedReader) List() []string {
	n := u.Number()
	if n == 0 || n > len(u.Rest)+1 { // each element has at least its length
		u.Bad = u.Bad || n > 0
		return nil
	}
	list := make([]string, n-1)
	for i := range list {
		list[i] = u.Text()
	}
	return list
}

// Flags reads flags.
func (u *packedReader) Flags(to ...*bool) {
	set := u.Number()
	for i, flag := range to {
		*flag = set>>i&1 == 1
	}
}

// End reports whether the whole text was read without an error.
func (u *packedReader) End() bool { return !u.Bad && u.Rest == "" }

// Fixed reads n bytes without a length prefix; it returns "" if there are fewer.
func (u *packedReader) Fixed(n int) string {
	if n > len(u.Rest) {
		u.Bad, u.Rest = true, ""
		return ""
	}
	s := u.Rest[:n]
	u.Rest = u.Rest[n:]
	return s
}
