package page

import (
	"fmt"
	"net/url"

	g "maragu.dev/gomponents"

	"github.com/skillsd/skillsd/provenance/story"
	"github.com/skillsd/skillsd/skills/pattern"
)

func (d *Sessions) node(v *view) g.Node {
	tile := func(name string, bad bool, shown any) g.Node {
		return tag("div"+either(bad, ".bad", ""), tag("dt", name), tag("dd", shown))
	}
	input := func(title, name string) g.Node {
		return tag("label", title, tag("input", attr("name", name), attr("value", v.Query[name])))
	}
	c := d.Counts
	rows := table(plural(d.Of, "session")+", newest first",
		"Started|Session|User|Client|Skills|#Runs|#Refused|Worst|State|Log",
		each(d.Sessions, func(_ int, s Summary) g.Node { return s.row() }))
	switch {
	case len(d.Sessions) > 0:
		rows = nodes(rows, pager(d.Paging))
	case len(v.Query) > 0:
		rows = tag("p.empty", "No session matches. ", link("/sessions", "Show all"))
	default:
		rows = tag("div.empty", tag("p", "No sessions yet", iff(d.Directory != "", " in ", code(d.Directory)),
			". A session appears here when a client first uses a skill."),
			iff(d.Directory != "", tag("p", command("skillsd setup claude --write"), " connects a client; ",
				command("skillsd doctor"), " says what is missing.")))
	}
	return nodes(tag("h1", "Sessions"), v.live("",
		tag("dl.tiles",
			tile("open now", false, link("/sessions?state=open", c.Open)),
			tile("questions waiting", c.Asking > 0, link("/approvals", c.Asking)),
			tile("used in 24 h", false, c.Sessions), tile("scripts run in them", false, c.Runs),
			tile("refused in them", c.Denials > 0, link("/refusals?days=1", c.Denials)),
			tile("crashed or damaged", c.Faults > 0, link("/sessions?state=crashed+or+damaged", c.Faults))),
		tag("form.filters", attr("method", "get"), attr("role", "search"), attr("id", "filters"),
			input("User", "principal"), input("Client", "client"), input("Skill", "skill"),
			tag("label", "State", tag("select", attr("name", "state"), tag("option", attr("value", ""),
				"any"),
				each(d.States, func(_ int, state string) g.Node {
					return tag("option", iff(state == v.Query["state"], g.Attr("selected")), state)
				}))),
			tag("label.check", tag("input", attr("type", "checkbox"), attr("name", "denied"), attr("value",
				1),
				iff(v.Query["denied"] != "", g.Attr("checked"))), " refused something"),
			tag("button", "Filter"), iff(len(v.Query) > 0, link("/sessions", "Show all"))),
		rows))
}

// live is the part that the browser requests again after a change.
func (v *view) live(query string, in ...any) g.Node {
	return tag("div", append([]any{attr("id", "live"), attr("data-live", "/live"+query),
		attr("data-state", v.State)}, in...)...)
}

func (s *Summary) row() g.Node {
	skills := list(s.Skills[:min(len(s.Skills), 6)])
	if len(s.Skills) == 0 {
		skills = mute("none")
	}
	refused, worst, record := nodes(0), mute("nothing"), mute("not yet")
	if s.Counts.Denials > 0 {
		refused = nodes(tag("b.bad", s.Counts.Denials))
	}
	if w := s.Worst; w != nil {
		worst = link(atEvent(s.ID, w.Seq), attr("class", "tag "+w.Class), bdi(w.Outcome))
	}
	if s.Verdict != nil {
		record = tag("span."+either(s.Verdict.State == differs, "tag.bad", "mute"), s.Verdict.State)
	}
	return tag("tr", cell("Started", when(s.CreatedAt.Time)),
		cell("Session.word", link(at(s.ID, ""), tag("code", short(s.ID)))),
		cell("User", arg(s.Principal)),
		cell("Client.client", arg(shortClient(s.Client))),
		cell("Skills.skills", skills, iff(len(s.Skills) > 6, " …")),
		cell("Runs.n", s.Counts.Runs), cell("Refused.n", refused), cell("Worst", worst),
		cell("State.word", tag("span.tag."+stateClass(s.State), s.State)), cell("Log.word", record))
}

// pseudoVersion is the version of a program that was built between releases: it names a time and a commit.
var pseudoVersion = pattern.New(`v[0-9.]+-(?:[0-9A-Za-z.]*\.)?[0-9]{14}-([0-9a-f]{7})[0-9a-f]*\S*`)

// shortClient returns a client with a short version.
func shortClient(client string) string {
	return pseudoVersion().ReplaceAllString(client, "$1")
}

func (d *Verdict) node() g.Node {
	switch {
	case d == nil:
		return mute("not verified yet")
	case d.State == verified:
		return tag("span.tag.good", "verified to event ", d.Head)
	case d.State == differs:
		return nodes(tag("span.tag.bad", differs), " ", bdi(d.Problem))
	}
	return tag("span.tag.plain", checking)
}

func (d *Session) node(v *view) g.Node {
	verify, only := command("skillsd session verify "+d.ID), v.Query["only"] != ""
	session := func(id string) g.Node { return link(at(id, ""), tag("code", short(id))) }
	record := nodes(d.Verdict.node())
	if d.Verdict != nil {
		record = append(record, each(d.Verdict.Notes, func(_ int, note string) g.Node {
			return nodes(tag("br"), mute(bdi(note)))
		}), iff(d.Verdict.State == differs, " ", verify))
	}
	started := nodes(when(d.CreatedAt.Time))
	if d.EndedAt != nil {
		started = append(started, nodes(", ended ", when(d.EndedAt.Time))...)
	}
	skills := list(d.Skills)
	if len(d.Skills) == 0 {
		skills = mute("none loaded")
	}
	blocks := timelineOf("timeline", d.Blocks, func(b Block) g.Node {
		return b.node(nodes(each(b.Outputs, func(_ int, o Output) g.Node { return o.node(d.ID) }), b.steps()))
	})
	if len(d.Blocks) == 0 {
		blocks = tag("p.empty", either(only, "Nothing failed, and nothing was refused.",
			"Nothing of this session can be read."))
	}
	return nodes(tag("p.crumb", link("/sessions", "Sessions")), tag("h1", "Session ", tag("code", d.ID)),
		v.live("?session="+url.QueryEscape(d.ID),
			tag("dl.facts", fact("Log", record),
				fact("Length", plural(d.Head.Seq, "event"), " ",
					tag("code.mute", attr("title", d.Head.Hash), short(d.Head.Hash))),
				fact("User", bdi(d.Principal)), fact("Client", bdi(d.Client)),
				fact("State", tag("span.tag."+stateClass(d.State), d.State)), fact("Started", started),
				fact("Skills", skills),
				iff(d.Mode != story.UsualMode, fact("Mode", bdi(d.Mode))),
				iff(d.ClientSession != "", fact("Client's id", bdi(d.ClientSession), " ",
					mute("not verified"))),
				iff(d.Profile != "", fact("Profile", bdi(d.Profile))),
				iff(d.Parent != "", fact("Parent", session(d.Parent))),
				iff(len(d.Children) > 0, fact("Children", each(d.Children,
					func(_ int, id string) g.Node { return nodes(session(id), " ") })))),
			iff(d.Fault != "", tag("p.note.bad", "The log cannot be read to its end: ", bdi(d.Fault), " ",
				verify)),
			tag("h2", attr("id", "timeline"), "Timeline ", mute(plural(d.Of, "call"))),
			tag("nav.pages", attr("aria-label", "Of this session"), iff(only, link(at(d.ID, ""),
				"All calls")),
				iff(!only && d.Bad > 0, link("?only=bad", "Failed or refused: ", d.Bad)),
				link(at(d.ID, "/replay"), "What the model was shown")),
			pager(d.Paging), blocks, pager(d.Paging),
			iff(len(d.Snapshots) > 0, tag("details", attr("id", "snapshots"),
				tag("summary", plural(len(d.Snapshots), "snapshot"), " of the skills and of this machine"),
				tag("p.steps", each(d.Snapshots, func(_ int, s Step) g.Node {
					return nodes(link(at(d.ID, fmt.Sprint("/events/", s.Seq)), bdi(s.What), " #", s.Seq), " ")
				}))))))
}

// node returns a call of a timeline with more in its middle.
func (b *Block) node(more g.Node) g.Node {
	var args g.Node
	if len(b.Args) > 0 {
		args = nodes(" ", tag("span.args", each(b.Args[:min(len(b.Args), 12)], func(_ int,
			text string) g.Node {
			return nodes(tag("code", arg(text)), " ")
		}), iff(len(b.Args) > 12, mute(len(b.Args), " in all"))))
	}
	detail := iff(b.Detail != "", tag("p.mute", prose(b.Detail)))
	switch {
	case b.why != "":
		detail = nodes(tag("p", bdi(b.why), " ", mute(code(b.Code))))
	case b.Code != "":
		detail = nodes(tag("p", code(b.Code), iff(b.Detail != "", " ", mute(prose(b.Detail)))))
	}
	one := iff(len(b.Steps) == 1, link(at(b.In, fmt.Sprint("/events/", b.First())),
		attr("aria-label", fmt.Sprint("event ", b.First())), "#", b.First()))
	return tag("li."+b.Class, attr("id", fmt.Sprint("e", b.First())),
		tag("div.when", when(b.Start()), one),
		tag("div.what", tag("p.line", tag("span.kind", b.Kind), " ", b.subject(), args), detail,
			iff(b.Operator != "", tag("p.remedy", advised(b.Operator))),
			iff(b.Remedy != "" && b.Remedy != b.Operator, tag("p.mute", "The model was told: ",
				prose(b.Remedy))),
			iff(b.StdinBytes != 0, tag("p.mute", "standard input: ", size(b.StdinBytes))),
			iff(b.Note != "", tag("p.note", prose(b.Note))), b.Undo.node(), more), b.outcome())
}

func (u *Undo) node() g.Node {
	switch {
	case u == nil:
		return nil
	case u.Undone != nil:
		return tag("p", "Its ", plural(u.Entries, "change"), " in the workspace were undone at ",
			when(*u.Undone), ": ", link(at(u.Session, ""), tag("code", short(u.Session))))
	case u.Problem != "":
		return tag("p.mute", "Its changes in the workspace cannot be undone: ", bdi(u.Problem))
	}
	return tag("p", mute(plural(u.Entries, "change"), " in the workspace. To undo: "),
		command("skillsd undo "+u.OutputID))
}

func (b *Block) subject() g.Node {
	return iff(b.Skill != "" || b.Path != "", tag("code.subject", bdi(b.Skill),
		iff(b.Path != "", mute("/"), bdi(b.Path))))
}

func (b *Block) outcome() g.Node {
	var bars g.Node
	if d := b.Bars(); d != nil {
		bars = nodes(scale(rect("wait", attr("width", d.Wait)), rect("fill", attr("x", d.Wait), attr("width",
			d.Run))),
			" ", mute(d.Words), " ")
	}
	return tag("div.out", tag("span.tag."+b.Class, bdi(b.Outcome)), " ", bars,
		iff(b.Backend != "", mute(bdi(b.Backend), iff(b.Network != "", ", network ", bdi(b.Network)),
			iff(b.Evidence != "", ", ", bdi(story.Permission(b.Evidence)))), " "),
		iff(b.Answer != "", mute("the user answered ", bdi(b.Answer))))
}

// scale is a bar of width 100 with parts.
func scale(parts ...any) g.Node {
	return tag("svg.bar", append([]any{attr("viewBox", "0 0 100 4"), attr("preserveAspectRatio", "none"),
		attr("aria-hidden", true), rect("rail", attr("width", 100))}, parts...)...)
}

func rect(class string, in ...any) g.Node {
	return tag("rect."+class, append(in, attr("height", 4))...)
}

func (b *Block) steps() g.Node {
	return iff(len(b.Steps) > 1, tag("p.steps", each(b.Steps, func(i int, s Step) g.Node {
		return nodes(iff(i > 0, " → "), link(at(b.In, fmt.Sprint("/events/", s.Seq)), s.What, " #", s.Seq))
	})))
}

func (o *Output) node(session string) g.Node {
	shown := pre(o.Text)
	if o.Gone != "" {
		shown = tag("p.mute", bdi(o.Gone))
	} else if o.More != 0 {
		all := link(at(session, "/replay"), "all that the model was shown")
		if o.Name != "" {
			all = link(at(session, "/outputs/"+url.PathEscape(o.Name)), "download")
		}
		shown = nodes(shown, tag("p.mute", size(o.More), " more: ", all))
	}
	return tag("details", attr("id", o.ID), tag("summary", bdi(o.Label), ", ", size(o.Bytes),
		iff(o.Withheld, ", withheld from the model")), shown)
}

// node returns a call in a list of calls of many sessions.
func (c Call) node() g.Node {
	return c.Block.node(tag("p.steps", link(atEvent(c.Session, c.First()), "session ", short(c.Session),
		", event ",
		c.First()), " of ", bdi(c.Principal), iff(c.Client != "", ", ", bdi(c.Client))))
}

func crumb(address, session string) g.Node {
	return tag("p.crumb", link("/sessions", "Sessions"), " / ", link(address, tag("code", short(session))))
}

func (d *Event) node() g.Node {
	return nodes(crumb(atEvent(d.Session, d.Event.Seq), d.Session), tag("h1", "Event ", d.Event.Seq),
		tag("dl.facts", fact("Kind", d.Event.Kind), fact("Time", when(d.Event.Time)),
			fact("Hash", tag("code", d.Event.Hash)), fact("Before it", tag("code.mute", d.Event.Prev))),
		pre(d.Pretty))
}

func (d *Replay) node() g.Node {
	shown := tag("p.empty", "The model was shown nothing in this session.")
	if d.Text != "" {
		shown = tag("pre.long", attr("tabindex", 0), tag("bdi", marked(split(d.Text, maxReplay, "\n\t"))))
	}
	return nodes(crumb(at(d.Session, ""), d.Session), tag("h1", "What the model was shown"),
		iff(d.Missing != "", tag("p.note.bad", bdi(d.Missing))),
		iff(d.Cut, tag("p.note", "Only the beginning is here. ",
			command("skillsd session replay "+d.Session))), shown)
}
