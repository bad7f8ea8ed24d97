package page

import (
	"cmp"
	"fmt"
	"net/url"

	g "maragu.dev/gomponents"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/doctor"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/provenance/story"
)

func (d *Refusals) node(v *view) g.Node {
	top := nodes(tag("h1", "Refusals"), daysForm(v, d.Days, d.Partial))
	if len(d.Groups) == 0 {
		return append(top, tag("p.empty", "Nothing was refused in ", plural(d.Days, "day"),
			". A call that skillsd "+
				"refuses appears here with its reason, and with the command that would allow it."))
	}
	by := func(name, more string) string { return fmt.Sprintf("?by=%s&days=%d%s", name, d.Days, more) }
	newest := nodes("Newest")
	if only := v.Query["only"]; only != "" {
		newest = nodes(bdi(only), ", newest")
	}
	return append(top,
		tag("p.pages", "by ", each([]string{"code", "skill", "principal"}, func(_ int, name string) g.Node {
			return nodes(link(by(name, ""), iff(name == d.By, attr("aria-current", true)), grouped(name)),
				" ")
		})),
		table(plural(d.Total, "refusal")+" in "+plural(d.Days, "day"),
			grouped(d.By)+"|#Count|Last|What changes the last one",
			each(d.Groups, func(_ int, row Group) g.Node {
				name := nodes(code(row.Name))
				if d.By == "code" {
					name = nodes(bdi(story.Words(row.Name)))
				}
				return tag("tr",
					cell(grouped(d.By)+".name", link(by(d.By, "&only="+url.QueryEscape(row.Name)), name)),
					cell("Count.n", row.Count), cell("Last", when(row.Last)), cell("Remedy",
						advised(row.Operator)))
			})),
		tag("h2", attr("id", "timeline"), newest, " first"), timelineOf("timeline", d.Calls, Call.node),
		pager(d.Paging))
}

// grouped is the word for a way to group refusals.
func grouped(by string) string {
	return cmp.Or(map[string]string{"code": "reason", "principal": "user"}[by], by)
}

func (d *Approvals) node(v *view) g.Node {
	open := timelineOf("open", d.Open, Call.node)
	if len(d.Open) == 0 {
		open = tag("p.empty", "No question waits in a client.")
	}
	settled := nodes(timelineOf("settled", d.Settled, Call.node), pager(d.Paging))
	if len(d.Settled) == 0 {
		settled = nodes(tag("p.empty", "No user was asked in ", plural(d.Days, "day"), ". ",
			command("skillsd help allow"), " says when they are."))
	}
	return nodes(tag("h1", "Approvals"), daysForm(v, d.Days, d.Partial), v.live("",
		iff(len(d.Waiting) > 0, tag("h2", attr("id", "waiting"), "Refused, because a client did not ask")),
		each(d.Waiting, func(_ int, w Waiting) g.Node {
			return tag("div.note", tag("p.mute", code(w.Code), " of ", bdi(w.Principal), ", until ",
				when(w.Expires), ", in ", link(at(w.Session, ""), tag("code", short(w.Session))), ":"),
				pre(w.Text), tag("form", attr("method", "post"), attr("action", "/approvals/"+w.Code),
					tag("input", attr("type", "hidden"), attr("name", "form"), attr("value", v.Viewer.form)),
					tag("button", "Let this call run once")))
		}),
		tag("h2", attr("id", "open"), "Waiting for an answer"),
		each(d.Questions, func(_ int, q Question) g.Node {
			return tag("div.note", tag("p.mute", bdi(q.Principal), " sees this since ", when(q.Asked),
				", until ",
				when(q.Expires), ", in ", link(at(q.Session, ""), tag("code", short(q.Session))), ":"),
				pre(q.Text))
		}), open, tag("h2", attr("id", "settled"), "Answered, or given up"), settled))
}

func check(c doctor.Check) g.Node {
	return nodes(prose(c.Fact), iff(c.Hint != "", tag("br"), mute(advised(c.Hint))))
}

func (d *Allowed) node() g.Node {
	top := nodes(tag("h1", "What may run"), each(d.Checks, func(_ int, c doctor.Check) g.Node {
		return tag("p.note"+either(c.Verdict == doctor.Fail, ".bad", ""), check(c))
	}))
	if len(d.Entries) == 0 {
		return append(top, tag("div.empty",
			tag("p", "No script may run: you have allowed none. Scripts that the flags of a server allow ",
				"are not in this list."),
			tag("p", command("skillsd list"), " names the skills, ", command("skillsd help allow"),
				" says how to allow one script after reading it.")))
	}
	return append(top, table(nodes("Your allowed scripts, compared with the files at ",
		when(d.At)),
		"Script|State|Where|Gets|Last run", each(d.Entries, func(_ int, e Entry) g.Node { return e.row() })),
		pager(d.Paging))
}

func (e *Entry) row() g.Node {
	gets := each(e.Grants(), func(_ int, text string) g.Node { return nodes(bdi(text), tag("br")) })
	if len(gets) == 0 {
		gets = nodes(mute("only its skill"))
	}
	last := nodes(mute("not in 7 days"))
	if r := e.Last; r != nil {
		last = nodes(link(atEvent(r.Session, r.Seq), when(r.Time)), " ", tag("span.tag."+r.Class,
			bdi(r.Outcome)))
	}
	class := map[string]string{"allowed": "good", "unpinned": "ask"}[e.State]
	return tag("tr",
		cell("Script.name", code(e.Script), iff(e.Pin != "", tag("br"), mute("allowed: the script ",
			digested(e.Pin),
			iff(e.Tree != "", ", all files ", digested(e.Tree)))), iff(e.Detail != "", tag("br"),
			advised(e.Detail))),
		cell("State.word", tag("span.tag."+either(class != "", class, "bad"), e.State)),
		cell("Where.word", e.Target, iff(e.Program != "", tag("br"), code(e.Program))),
		cell("Gets", gets), cell("Last run", last))
}

func facts(row *report.SkillRow) g.Node {
	return nodes(tag("p.mute", "from ", bdi(either(row.Origin != "", row.Origin, row.Root)),
		iff(row.TreeDigest != "", ", version of the files ", digested(row.TreeDigest))),
		iff(len(row.Diagnostics) > 0, tag("details", tag("summary", plural(len(row.Diagnostics), "remark")),
			tag("ul", each(row.Diagnostics, func(_ int, d report.Diagnostic) g.Node {
				return tag("li", d.Severity, ": ", prose(d.Detail), iff(d.Fix != "", "; ", prose(d.Fix)), " ",
					mute(code(d.Code)))
			})))),
		iff(len(row.Scripts) > 0, tag("details", tag("summary", plural(len(row.Scripts), "script")),
			tag("ul", each(row.Scripts, func(_ int, s report.ScriptRow) g.Node {
				state := nodes(tag("span.tag.plain", "may not run"), " ", prose(s.Reason))
				if s.Allowed {
					state = nodes(tag("span.tag.good", "allowed"))
				}
				return tag("li", code(s.Path), " ", state)
			})))))
}

func state(row *report.SkillRow) g.Node {
	return tag("span.tag."+either(row.State == "enabled", "good", "ask"), row.State)
}

func (d *Skill) node() g.Node {
	return nodes(tag("p.crumb", link("/skills", "Skills")), tag("h1", "Skill ", code(d.Path)),
		tag("p", bdi(d.Description)),
		tag("p", "trust: ", d.Tier, " ", state(&d.SkillRow), each(d.Reasons, func(_ int, text string) g.Node {
			return nodes(" ", bdi(text))
		})), facts(&d.SkillRow),
		tag("h2", "Files"), each(d.Files, func(_ int, f File) g.Node {
			shown := pre(f.Text)
			if f.Missing != "" {
				shown = tag("p.mute", f.Missing)
			}
			return tag("details", iff(f.Missing == "" && f.Path == "SKILL.md", g.Attr("open")),
				tag("summary", bdi(f.Path), ", ", size(f.Bytes), " ", digested(f.Digest)), shown)
		}))
}

func (d *Skills) node() g.Node {
	top := nodes(tag("h1", "Skills"))
	if d.Update == nil {
		top = append(top, tag("p.mute", command("skillsd update --preview"),
			" prints what an update would bring."))
	} else {
		top = append(top, d.Update.node(), tag("h2", "Skills here"))
	}
	if len(d.Skills) == 0 {
		return append(top, tag("div.empty", tag("p", "No skills are found."),
			tag("p", command("skillsd install ./my-skills --all"), " installs those of a directory.")))
	}
	return append(top, tag("p.caption", plural(d.Of, "skill"), ", as they were at ", when(d.At)),
		timelineOf("", d.Skills, func(row report.SkillRow) g.Node {
			return tag("li."+either(row.State == "enabled", "good", "plain"),
				tag("div.when", "trust: ", row.Tier),
				tag("div.what", tag("p.line", link("/skill?path="+url.QueryEscape(row.Path), code(row.Path)),
					each(row.Reasons, func(_ int, text string) g.Node {
						return nodes(" ",
							mute(bdi(text)))
					})),
					tag("p", bdi(row.Description)), facts(&row)), tag("div.out", state(&row)))
		}), pager(d.Paging))
}

func (d *Updates) node() g.Node {
	top := nodes(tag("h2", attr("id", "updates"), "What an update would bring ", mute("asked ", when(d.At))),
		iff(d.Error != "", tag("p.note.bad", bdi(d.Error))))
	if len(d.Rows) == 0 {
		return append(top, iff(d.Error == "", tag("p.empty",
			"Every installed skill is what its source has.")))
	}
	version := func(word string, v *report.Version) g.Node {
		if v == nil {
			return nil
		}
		return tag("p.mute", word, iff(v.Commit != "", "commit ", code(short(v.Commit)), ", "),
			"version of the files ",
			digested(v.Tree))
	}
	return append(top,
		tag("p.mute", command("skillsd update --preview"), " prints it, ", command("skillsd update"),
			" does it."),
		timelineOf("updates", d.Rows, func(row report.Update) g.Node {
			return tag("li."+either(row.State == "changed", "plain", "bad"), tag("div.when", row.State),
				tag("div.what", tag("p.line", code(row.Name)), iff(row.Error != "", tag("p", bdi(row.Error))),
					version("from ", row.Before), version("to ", row.After),
					each(row.ToolsAdded, func(_ int, tool string) g.Node {
						return tag("p.note", "allowed-tools adds ", code(tool))
					}),
					each(row.Signals, func(_ int, s report.Diagnostic) g.Node {
						return tag("p.note", code(s.Code), " ", bdi(s.Detail))
					}),
					each(row.Files, func(_ int, f report.FileChange) g.Node {
						if f.Diff == "" {
							return tag("p.mute", f.Change, " ", bdi(f.Path))
						}
						return tag("details", tag("summary", f.Change, " ", bdi(f.Path)), pre(f.Diff))
					})))
		}))
}

func (d *Health) node() g.Node {
	return nodes(tag("h1", "Health"), chart(d.Days), d.Server.node(), members(d.Cluster),
		iff(len(d.Limits) > 0, tag("details", tag("summary", "Limits of a run"),
			tag("dl.facts", each(d.Limits, func(_ int, row config.Row) g.Node {
				return fact(row.Key[len("limits."):], bdi(row.Value), " ", mute(bdi(row.Source)))
			})))),
		iff(len(d.Checks) > 0, iff(d.Server != nil, tag("h2", "This machine")),
			table(nodes("What ", tag("code", "skillsd doctor"), " says, the worst first, at ", when(d.At)),
				"Verdict|Area|Found", each(d.Checks, func(_ int, c doctor.Check) g.Node {
					class := map[string]string{doctor.OK: "good", doctor.Warn: "ask"}[c.Verdict]
					return tag("tr",
						cell("Verdict.word", tag("span.tag."+either(class != "", class, "bad"), c.Verdict)),
						cell("Area.word", bdi(c.Label())), cell("Found", check(c)))
				}))), pager(d.Paging))
}

func chart(days []Day) g.Node {
	if len(days) == 0 {
		return nil
	}
	all := ""
	for _, d := range days {
		all += fmt.Sprintf("%s: %d ran, %d failed, %d refused, %d asked. ", d.Date, d.Runs, d.Failed,
			d.Refused, d.Asked)
	}
	rect := func(class string, x, y, width, height int) g.Node {
		return tag("rect."+class, attr("x", x), attr("y", y), attr("width", width), attr("height", height))
	}
	key := func(class string) g.Node { return tag("span.key." + class) }
	return tag("figure", tag("figcaption.caption", key("good"), " runs, ", key("plain"),
		" of them failed, and ",
		key("bad"), " refusals, by day"),
		tag("svg.chart", attr("viewBox", fmt.Sprintf("0 0 %d 92", len(days)*dayWidth)), attr("role", "img"),
			attr("aria-label", all), each(days, func(_ int, d Day) g.Node {
				return tag("g", tag("title",
					fmt.Sprintf("%s: %d ran, of which %d failed; %d refused; %d asked",
						d.Date, d.Runs, d.Failed, d.Refused, d.Asked)), rect("rail", d.Left(), 75, 42, 1),
					tag("text", attr("x", d.Left()), attr("y", 90), d.Name()),
					each(d.Bars(), func(_ int, b bar) g.Node {
						return iff(b.Count != 0, rect(b.Class, b.X, b.Y, 13, b.Height),
							tag("text", attr("x", b.X), attr("y", b.Y), attr("dy", -3), b.Count))
					}))
			})))
}

func (d *Live) node() g.Node {
	if d == nil {
		return nil
	}
	use := func(column string, u Use, show func(int64) string) g.Node {
		return cell(column, show(u.Used), iff(u.Most != 0, " of ", show(u.Most),
			scale(rect("fill", attr("width", u.Part())))))
	}
	number := func(n int64) string { return fmt.Sprint(n) }
	return nodes(tag("h2", attr("id", "server"), "This server"),
		tag("p", plural(d.Free, "free slot"), " for scripts, ", plural(d.Waiting, "run"), " waiting."),
		iff(len(d.Principals) > 0, table("Users, with what they use of their quotas",
			"User|#Running|#Waiting|#Sessions|#Logs|#Outputs",
			each(d.Principals, func(_ int, p Principal) g.Node {
				return tag("tr", cell("User", bdi(p.Name)), cell("Running.n", p.Running),
					cell("Waiting.n", p.Waiting), use("Sessions.n", p.Sessions, number),
					use("Logs.n", p.Bytes, size), use("Outputs.n", p.Outputs, size))
			}))))
}

func members(d *cluster.Members) g.Node {
	if d == nil {
		return nil
	}
	var nodeRows, copies g.Group
	for _, n := range d.Nodes {
		nodeRows = append(nodeRows, tag("tr", cell("Node", bdi(n.Name), iff(n.Own, " ", mute("this one"))),
			cell("Address", bdi(n.Address)), cell("Sessions.n", n.Sessions)))
	}
	for _, s := range d.Servers {
		state := tag("span.tag.ask", "catching up")
		if s.Offline {
			state = tag("span.tag.bad", "offline")
		} else if s.Current {
			state = tag("span.tag.good", "current")
		}
		copies = append(copies, tag("tr", cell("Server", bdi(s.Name), iff(s.Leader, " ", mute("leads"))),
			cell("State", state), cell("Behind.n", s.Behind)))
	}
	workers := nodes(tag("span.tag.bad", "no worker"), " of pool ", bdi(d.Pool),
		" answers, so no script runs.")
	if len(d.Workers) > 0 {
		workers = nodes("Workers of pool ", bdi(d.Pool), " that answer: ", list(d.Workers), ".")
	}
	return nodes(tag("h2", "Cluster"),
		table("Servers of skillsd that answer, with the sessions that each has",
			"Node|Address|#Sessions", nodeRows), iff(d.Pool != "", tag("p", workers)),
		iff(len(copies) > 0, table("Copies of the logs", "Server of NATS|State|#Messages behind", copies)))
}
