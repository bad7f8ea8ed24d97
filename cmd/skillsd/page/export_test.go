package page

import "strings"

// Routes returns the patterns of all routes.
func (p *Page) Routes() []string { return p.routes }

// Link returns a link to an address.
func Link(address string) string { return nodes(link(address)).String() }

// Advised returns the commands that a text of ours offers for copying, with " | " between them.
func Advised(text string) string {
	var commands []string
	for _, p := range advice(text) {
		if p.Command != "" {
			commands = append(commands, p.Command)
		}
	}
	return strings.Join(commands, " | ")
}

// Foreign returns how a foreign text is shown in a line, or in a block of its own, with marks in brackets.
func Foreign(text string, block bool) string {
	list := parts(text)
	if block {
		list = blockParts(text)
	}
	var out strings.Builder
	for _, p := range list {
		out.WriteString(p.Text)
		if p.Mark != "" {
			out.WriteString("[" + p.Mark + "]")
		}
	}
	return out.String()
}

// ShortClient returns a client as lists show it.
func ShortClient(client string) string { return shortClient(client) }
