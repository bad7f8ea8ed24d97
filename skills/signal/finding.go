package signal

import "fmt"

// finding is the number of findings of a kind in a file, and the first line. The plain ones are more than
// worth knowing.
type finding struct{ count, line, last, plain, plainLine int }

// findings are the findings in a file, by their kinds.
type findings [kinds]finding

// add adds a finding that is worth knowing.
func (f *findings) add(kind Kind, line int) {
	found := &f[kind]
	found.count++
	found.last = line
	if found.line == 0 {
		found.line = line
	}
}

// addPlain adds a finding that a user should look at.
func (f *findings) addPlain(kind Kind, line int) {
	f.add(kind, line)
	found := &f[kind]
	found.plain++
	if found.plainLine == 0 {
		found.plainLine = line
	}
}

// addIf adds a finding that a user should look at if isPlain is set.
func (f *findings) addIf(isPlain bool, kind Kind, line int) {
	if isPlain {
		f.addPlain(kind, line)
	} else {
		f.add(kind, line)
	}
}

// signals returns the signals of the findings. characters has the numbers of the invisible ones.
func (f *findings) signals(characters *characterCounts) (out []Signal) {
	for kind, found := range f {
		if found.count == 0 {
			continue
		}
		signal := Signal{Kind: Kind(kind), Line: found.line, Minor: found.plain == 0}
		count := found.count
		if found.plain > 0 {
			signal.Line, count = found.plainLine, found.plain
		}
		if signal.Kind == Invisible {
			signal.Detail = characters.String()
		} else {
			signal.Detail = plural(count, wordings[kind].noun) + wordings[kind].rest
		}
		if count > 1 {
			signal.Detail += "; this is the first"
		}
		out = append(out, signal)
	}
	return out
}

// wordings are the texts of signals: a noun that gets a number, and the rest of the phrase.
var wordings = [kinds]struct{ noun, rest string }{
	Comment: {"HTML comment", " with more than a mark for programs"},
	Pipe:    {"command", " to run what is downloaded or decoded"},
	Dynamic: {"command", " that some clients run while they load a skill; they are text here"},
	Phrase:  {"line", " with words known from attempts to take over a model"},
	Config:  {"line", " to change the configuration of an agent"},
	Unasked: {"thing", " that other programs run by themselves"},
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
