package page

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"
)

// Screens are built from elements in Go: a template engine calls methods by name, so the linker would keep
// all methods of the program.

// tag returns an element with a name and classes, as in "p.note.bad", and its content.
func tag(name string, in ...any) g.Node {
	name, classes, has := strings.Cut(name, ".")
	if has {
		in = append([]any{attr("class", strings.ReplaceAll(classes, ".", " "))}, in...)
	}
	return g.El(name, nodes(in...)...)
}

// nodes returns nodes unchanged, and everything else as text.
func nodes(in ...any) (all g.Group) {
	for _, v := range in {
		switch v := v.(type) {
		case nil:
		case g.Node:
			all = append(all, v)
		default:
			all = append(all, g.Text(fmt.Sprint(v)))
		}
	}
	return all
}

func attr(name string, value any) g.Node { return g.Attr(name, fmt.Sprint(value)) }

// iff returns nodes if shown, else nothing.
func iff(shown bool, in ...any) g.Group {
	if !shown {
		return nil
	}
	return nodes(in...)
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

func each[T any](list []T, show func(i int, v T) g.Node) (all g.Group) {
	for i, v := range list {
		all = append(all, show(i, v))
	}
	return all
}

// link returns a link within this page, even if address contains foreign text.
func link(address string, in ...any) g.Node {
	return tag("a", append([]any{attr("href", local(address))}, in...)...)
}

// local returns an address within this page unchanged, and "#" for any other.
func local(address string) string {
	second := strings.TrimPrefix(address, "/")
	// Browsers read // and /\ as the beginning of another host.
	if second != address && !strings.HasPrefix(second, "/") && !strings.HasPrefix(second, `\`) ||
		strings.HasPrefix(address, "?") || strings.HasPrefix(address, "#") {
		return address
	}
	return "#"
}

// at returns the address of a session, with a suffix.
func at(session, more string) string { return "/sessions/" + url.PathEscape(session) + more }

// atEvent returns the address of an event in the timeline of a session.
func atEvent(session string, seq uint64) string {
	return at(session, fmt.Sprintf("?at=%d#e%d", seq, seq))
}

func marked(list []part) g.Node {
	return each(list, func(_ int, p part) g.Node {
		if p.Mark != "" {
			return tag("span.mark", p.Mark)
		}
		return g.Text(p.Text)
	})
}

// bdi is foreign text within a line.
func bdi(text any) g.Node { return tag("bdi", marked(parts(text))) }

func code(text any) g.Node { return tag("code", bdi(text)) }

// pre is foreign text in a block of its own.
func pre(text string) g.Node {
	// A block that scrolls must be reachable by keyboard.
	return tag("pre", attr("tabindex", 0), tag("bdi", marked(blockParts(text))))
}

func arg(text string) g.Node { return tag("bdi", marked(split(text, maxArg, ""))) }

func mute(in ...any) g.Node { return tag("span.mute", in...) }

func command(text string) g.Node {
	return tag("span.copy", tag("code", text),
		tag("button", attr("type", "button"), attr("data-copy", text), "Copy"))
}

// advised is a text of skillsd, with its commands as text to copy.
func advised(text string) g.Node {
	return each(advice(text), func(_ int, p piece) g.Node {
		if p.Command != "" {
			return command(p.Command)
		}
		return prose(p.Text)
	})
}

// prose is a text with words in backquotes, which are shown as code.
func prose(text string) g.Node {
	words := strings.Split(text, "`")
	if len(words)%2 == 0 {
		return bdi(text)
	}
	return each(words, func(i int, word string) g.Node {
		if i%2 == 1 {
			return code(word)
		}
		return bdi(word)
	})
}

func when(t time.Time) g.Node {
	return tag("time", attr("datetime", stamp(t)), attr("title", stamp(t)), clock(t))
}

func digested(sum any) g.Node { return tag("code", attr("title", sum), short(sum)) }

// list is texts separated by commas.
func list(texts []string) g.Node {
	return each(texts, func(i int, text string) g.Node { return nodes(iff(i > 0, ", "), bdi(text)) })
}

// table is a table with columns as in "Name|#Count"; # marks columns of numbers.
func table(caption any, columns string, rows g.Node) g.Node {
	return tag("table", tag("caption", caption), tag("thead", tag("tr",
		each(strings.Split(columns, "|"), func(_ int, name string) g.Node {
			name, number := strings.CutPrefix(name, "#")
			return tag("th"+either(number, ".n", ""), attr("scope", "col"), name)
		}))), tag("tbody", rows))
}

// cell is a cell of a column, as in "Count.n" with its class.
func cell(column string, in ...any) g.Node {
	column, class, has := strings.Cut(column, ".")
	return tag("td"+either(has, "."+class, ""), append([]any{attr("data-label", column)}, in...)...)
}

func fact(name string, in ...any) g.Node { return tag("div", tag("dt", name), tag("dd", in...)) }

func timelineOf[T any](by string, rows []T, show func(T) g.Node) g.Node {
	return tag("ol.timeline", iff(by != "", attr("aria-labelledby", by)),
		each(rows, func(_ int, row T) g.Node { return show(row) }))
}

func pager(p Paging) g.Node {
	if p.Before == "" && p.After == "" {
		return nil
	}
	to := func(address, title, rel string) g.Node {
		return iff(address != "", link(address, iff(rel != "", attr("rel", rel)), title))
	}
	return tag("nav.pages", attr("aria-label", "Pages"), mute(p.From+1, "–", p.To, " of ", p.Of), " ",
		to(p.Before, "Previous", "prev"), to(p.After, "Next", "next"), to(p.Last, "Last", ""))
}

// daysForm is the form for the number of days. It keeps the other filters.
func daysForm(v *view, days int, partial bool) g.Node {
	return nodes(tag("form.filters", attr("method", "get"), attr("role", "search"),
		each(slices.Sorted(maps.Keys(v.Query)), func(_ int, key string) g.Node {
			return iff(key != "days" && key != "from", tag("input", attr("type", "hidden"), attr("name", key),
				attr("value", v.Query[key])))
		}),
		tag("label", "Days", tag("input", attr("name", "days"), attr("type", "number"), attr("min", 1),
			attr("max", 3650), attr("value", days))), tag("button", "Show")),
		iff(partial, tag("p.note", "Older sessions of these days were not read. Ask for fewer days, or use ",
			tag("code", "skillsd session list"), ".")))
}

// node returns a complete screen.
func (v *view) node() g.Node {
	style := tag("link", attr("rel", "stylesheet"), attr("href", "/static/page.css"))
	head := nodes(tag("meta", attr("charset", "utf-8")), tag("title", v.Title, " · skillsd"), style)
	var body g.Node
	if _, ok := v.Data.(entered); ok {
		head = append(head, tag("meta", attr("http-equiv", "refresh"), attr("content", "0;url=/sessions")))
		body = tag("main", tag("p", "You are signed in. ", link("/sessions", "Sessions")))
	} else {
		head = append(head, tag("script", attr("src", "/static/page.js"), g.Attr("defer")),
			tag("meta", attr("name", "viewport"), attr("content", "width=device-width,initial-scale=1")))
		body = nodes(link("#main", attr("class", "skip"), "Skip to content"), iff(v.Nav != "login",
			v.header()),
			tag("main", attr("id", "main"), attr("tabindex", -1),
				iff(v.Unread != "", tag("p.note.bad", attr("role", "alert"),
					"The logs of sessions cannot be read: ", bdi(v.Unread))),
				v.body(), iff(v.JSON != "", tag("p.pages", link(v.JSON, "JSON")))))
	}
	return nodes(g.Raw("<!doctype html>\n"),
		tag("html", attr("lang", "en"), tag("head", head), tag("body", body)))
}

func (v *view) header() g.Node {
	name := v.Viewer.Name()
	return tag("header", tag("div.in", link("/sessions", attr("class", "brand"), "skillsd"), " ",
		tag("nav", attr("aria-label", "Main"), each(v.Links(), func(_ int, row navRow) g.Node {
			return link(row.Path, iff(row.Here, attr("aria-current", "page")), row.Title)
		})), " ", mute(attr("id", "state"), attr("role", "status"), "as of ", when(v.Now)), " ",
		tag("form", attr("method", "post"), attr("action", "/logout"), iff(name != "", mute(bdi(name)), " "),
			tag("button", "Sign out"))))
}

// body returns the part that differs between screens.
func (v *view) body() g.Node {
	switch d := v.Data.(type) {
	case string:
		return nodes(tag("h1", "This cannot be shown"), tag("p", advised(d)), tag("p", link("/sessions",
			"Sessions")))
	case *loginForm:
		return d.node()
	case *Sessions:
		return d.node(v)
	case *Session:
		return d.node(v)
	case *Event:
		return d.node()
	case *Replay:
		return d.node()
	case *Refusals:
		return d.node(v)
	case *Approvals:
		return d.node(v)
	case *Allowed:
		return d.node()
	case *Skills:
		return d.node()
	case *Skill:
		return d.node()
	case *Health:
		return d.node()
	}
	return nil
}

func (d *loginForm) node() g.Node {
	said := map[string]string{
		"refused": "This link was used, or another one was printed since.",
		"shown":   "skillsd printed another link. Open it in this browser.",
		"soon":    "A link was printed just now. Open it, or ask again in a moment.",
		"unavailable": "The login service does not answer as it should. Try again in a moment; " +
			"the log of skillsd says why.",
		"login": "The login was not accepted. Sign in again; the log of skillsd says why.",
		"role":  "Your account may not see this page. Ask who operates this server for the role.",
	}[d.Said]
	top := nodes(tag("h1", "skillsd"), iff(said != "",
		tag("p.note"+either(d.Said == "shown", "", ".bad"), attr("role", "alert"), said)))
	form := func(in ...any) g.Node {
		return tag("form", append([]any{attr("method", "post"), attr("action", "/login")}, in...)...)
	}
	if d.Issuer != "" {
		return append(top, tag("p", "Sign in to see what agents did."), tag("p",
			link("/login/start", attr("class", "button"), "Sign in"), " ", mute("at ", bdi(d.Issuer))))
	}
	return append(top,
		tag("p", "Open the link that skillsd printed where it was started, or paste what is behind ",
			tag("code", "#"), " in it."),
		form(attr("class", "filters"), attr("id", "login"), tag("label", "Key", tag("input", attr("name",
			"token"),
			attr("id", "token"), attr("type", "password"), attr("autocomplete", "off"), g.Attr("required"))),
			tag("button", "Open")),
		form(tag("button", attr("name", "another"), attr("value", 1), "Print another link")))
}
