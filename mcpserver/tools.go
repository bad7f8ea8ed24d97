package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/skills/policy"
)

const methodListTools = "tools/list"

// Names of the tools.
const (
	ToolLoad   = "load_skill"
	ToolRead   = "read_skill_resource"
	ToolSearch = "search_skills"
	ToolRun    = "run_skill_script"
)

// ReadMethods are the tools and methods every server offers: they only read.
func ReadMethods() []string {
	return []string{
		ToolLoad, ToolRead, ToolSearch,
		methodReadResource, methodListSkills, methodGetSkill, methodReadDirectory, methodGetPrompt,
	}
}

// Bounds of the tools' arguments, as their schemas state them.
const (
	MaxReadBytes     = 256_000
	DefaultReadBytes = 64_000
	MaxStdinBytes    = 1 << 20
)

// listTools is tools/list. load_skill holds the catalogue.
func (s *Server) listTools(ctx context.Context, r *request) (any, error) {
	to := clientOf(ctx)
	to.names = to.names || firstText(r.Meta[metaSession]) != ""
	s.noteListed(ctx, r) // before: what comes meanwhile is news at worst
	if v := s.listed(r.scope); v != nil {
		return &mcp.ListToolsResult{Tools: v.tools(to)}, nil
	}
	return &mcp.ListToolsResult{Tools: s.describe(s.offersOf(r.scope), nil, to)}, nil
}

// describe makes the list of tools for a client; c is nil during the first scan, if no earlier one is known.
func (s *Server) describe(offers offers, c *catalogue, to client) []mcp.Tool {
	tools := []mcp.Tool{}
	if offers.loads {
		description, name := s.loadTexts(c, offers.searches, to)
		tools = append(tools, loadTool(description, name, to.names))
	}
	if offers.reads {
		tools = append(tools, readTool())
	}
	if offers.searches && (c == nil && !s.cfg.NoCatalog || c != nil && c.searchable) {
		tools = append(tools, searchTool())
	}
	if offers.runs {
		tools = append(tools, s.runTool())
	}
	for i := range tools {
		// Without it a skill takes two more requests. Search is of use where the catalogue is cut.
		if tools[i].Name != ToolSearch || c == nil || c.cut {
			alwaysLoad(&tools[i])
		}
	}
	return tools
}

// alwaysLoad has a tool shown at the start of a session by clients that else show it when it is searched for.
func alwaysLoad(tool *mcp.Tool) {
	tool.Meta = &mcp.Meta{AdditionalFields: map[string]any{"anthropic/alwaysLoad": true}}
}

// runTool describes run_skill_script as it is configured.
func (s *Server) runTool() mcp.Tool {
	files := s.cfg.Workspace != "" || s.cfg.AskWorkspace
	network := slices.ContainsFunc(s.cfg.Sessions.Policy().Entries(), func(entry policy.Entry) bool {
		return len(entry.Network) > 0 || entry.Target == policy.TargetHost
	})
	usual, most := s.cfg.Sessions.Timeouts()
	return runTool(network, files, usual, most)
}

// loadTool describes load_skill and its parameter name. The parameter has no enum of the names: clients that
// check it refuse a name that is nearly right, which else is answered with the names that are like it.
// force is among the parameters if it has an effect.
func loadTool(description, name string, force bool) mcp.Tool {
	properties := []property{
		{name: "name", of: typeString, description: name, required: true},
		{name: "file_path", of: typeString,
			description: "Return this file of the skill instead of its instructions"},
		{name: "activation", of: typeString, description: handleText},
	}
	if force {
		properties = append(properties, property{name: "force", of: typeBool,
			description: "Return instructions that this conversation was sent less than a minute ago"})
	}
	return newTool(ToolLoad, "Load skill", description, schemaOf(properties...), true, false, false)
}

// handleText describes the argument activation.
const handleText = "The activation handle, if load_skill returned one"

func readTool() mcp.Tool {
	schema := schemaOf(
		property{name: "skill", of: typeString, required: true,
			description: "Path or unique name of the skill"},
		property{name: "path", of: typeString, required: true,
			description: "Path of the file in the skill, as load_skill lists it"},
		property{name: "maxBytes", of: typeInteger, description: "Most bytes to return (default 64000)",
			least: new(0), most: MaxReadBytes},
		property{name: "offset", of: typeInteger,
			description: "Byte to start at", least: new(0)},
		property{name: "activation", of: typeString, description: handleText})
	const description = "Read a file of a skill (references, templates, assets, scripts) or list a " +
		"directory of it. The end of a cut text names the offset to continue with. Pictures (PNG, JPEG, " +
		"GIF, WebP) are shown. Reads are recorded."
	return newTool(ToolRead, "Read skill resource", description, schema, true, false, false)
}

func searchTool() mcp.Tool {
	schema := schemaOf(
		property{name: "query", of: typeString, required: true,
			description: "2 to 6 keywords: what the skill is for, file types, names of products"},
		property{name: "cursor", of: typeString,
			description: "Where to continue, as the end of the page before it says"})
	const description = "Find skills by words of their names, descriptions and tags, best match first. " +
		"Use it when the list in load_skill does not show every skill in full. Send keywords that a " +
		"description would have, not the user's sentence; if none of the hits fits, try other " +
		"words for it. " +
		"Then call load_skill with the path before the colon."
	return newTool(ToolSearch, "Search skills", description, schema, true, false, false)
}

func runTool(network, files bool, usual, most time.Duration) mcp.Tool {
	schema := schemaOf(
		property{name: "skill", of: typeString,
			description: "Path or unique name of the skill", required: true},
		property{name: "path", of: typeString,
			description: "Path of the script in the skill", required: true},
		property{name: "args", of: typeStrings,
			description: "Arguments; no shell expands them"},
		property{name: "cwd", of: typeString,
			description: "Working directory below /workspace, /skill, /out or /tmp"},
		property{name: "timeoutMs", of: typeInteger,
			description: fmt.Sprintf("Milliseconds until it is killed (default %d)", usual.Milliseconds()),
			least:       new(1), most: int(most.Milliseconds())},
		property{name: "stdin", of: typeString,
			description: "Standard input, at most 1 MiB"},
		property{name: "activation", of: typeString, description: handleText})
	reach := "there is no network"
	if network {
		reach = "it reaches only what the operator granted"
	}
	sees := "It sees none of the user's files: pass their text on stdin. It starts in /out"
	if files {
		sees = "It starts in /workspace, the user's directory, if that is granted: name files there by " +
			"relative paths"
	}
	description := "Run a script of a loaded skill that the operator allowlisted, in a sandbox: its skill " +
		"is read-only at /skill, and " + reach + ". " + sees + ", and what it leaves in /out is returned. " +
		"Any exit code is a normal result. Do not retry a refusal unchanged."
	return newTool(ToolRun, "Run skill script", description, schema, false, true, network)
}

// newTool states all three hints: clients assume the worst of a missing one.
func newTool(
	name, title, description string, schema json.RawMessage, readOnly, destructive, openWorld bool,
) mcp.Tool {
	return mcp.Tool{
		Name: name, Title: title, Description: description, RawInputSchema: schema,
		Annotations: mcp.ToolAnnotation{
			Title: title, ReadOnlyHint: &readOnly, DestructiveHint: &destructive, OpenWorldHint: &openWorld,
		},
	}
}

// property is an argument of a tool. Null is not a value of any.
type property struct {
	name, of, description string
	required              bool
	least                 *int // nil: not bounded
	most                  int  // 0: not bounded
}

// Types of arguments, in JSON.
const (
	typeString  = `"string"`
	typeStrings = `"array","items":{"type":"string"}`
	typeBool    = `"boolean"`
	typeInteger = `"integer"`
)

// schemaOf returns the schema of a tool's arguments. To infer it from the struct that they are decoded into,
// and to encode what was inferred, would take longer than the rest of the list of tools; a test compares the
// two. Unknown fields are left to the handlers, which ignore them.
func schemaOf(properties ...property) json.RawMessage {
	raw, required := []byte(`{"type":"object","properties":{`), []string{}
	for i, p := range properties {
		if i > 0 {
			raw = append(raw, ',')
		}
		description, _ := json.Marshal(p.description) // a text always marshals
		raw = fmt.Appendf(raw, `%q:{"type":%s,"description":%s`, p.name, p.of, description)
		if p.least != nil {
			raw = fmt.Appendf(raw, `,"minimum":%d`, *p.least)
		}
		if p.most != 0 {
			raw = fmt.Appendf(raw, `,"maximum":%d`, p.most)
		}
		raw = append(raw, '}')
		if p.required {
			required = append(required, strconv.Quote(p.name))
		}
	}
	return fmt.Appendf(raw, `},"required":[%s]}`, strings.Join(required, ","))
}
