package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
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

// ReadMethods are the tools and methods that every server offers; they only read.
func ReadMethods() []string {
	return []string{
		ToolLoad, ToolRead, ToolSearch,
		methodReadResource, methodListSkills, methodGetSkill, methodReadDirectory, methodGetPrompt,
	}
}

// Bounds of the tools' arguments, as in their schemas.
const (
	maxReadBytes     = 256_000
	defaultReadBytes = 64_000
	MaxStdinBytes    = 1 << 20
)

// listTools is tools/list. The description of load_skill contains the catalogue.
func (s *Server) listTools(ctx context.Context, r *request) (any, error) {
	to := clientOf(ctx)
	to.names = to.names || firstText(r.Meta[metaSession]) != ""
	// In this order, a concurrent change may be announced twice, but is not lost.
	s.noteListed(ctx, r)
	if v := s.listed(r.scope); v != nil {
		return &mcp.ListToolsResult{Tools: v.tools(to)}, nil
	}
	return &mcp.ListToolsResult{Tools: s.describe(s.offersOf(r.scope), nil, to)}, nil
}

// describe returns the list of tools for a client; c is nil during the first scan without an earlier
// catalogue.
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
		// Without this flag a skill takes two more requests. Search is useful only if the catalogue is cut.
		if tools[i].Name != ToolSearch || c == nil || c.cut {
			alwaysLoad(&tools[i])
		}
	}
	return tools
}

// alwaysLoad makes clients show a tool at the start of a session that would otherwise defer it until a
// search.
func alwaysLoad(tool *mcp.Tool) {
	tool.Meta = &mcp.Meta{AdditionalFields: map[string]any{"anthropic/alwaysLoad": true}}
}

// runTool describes run_skill_script for this configuration.
func (s *Server) runTool() mcp.Tool {
	files := s.cfg.Workspace != "" || s.cfg.AskWorkspace
	network := slices.ContainsFunc(s.cfg.Sessions.Policy().Entries(), func(entry policy.Entry) bool {
		return len(entry.Network) > 0 || entry.Target == policy.TargetHost
	})
	usual, most := s.cfg.Sessions.Timeouts()
	return runTool(network, files, usual, most)
}

// loadTool describes load_skill and its parameter name. force is among the parameters only if it has an
// effect.
func loadTool(description, name string, force bool) mcp.Tool {
	// With an enum of the names, clients would refuse a name that is nearly right, which the server answers
	// with similar names.
	args := arguments{
		"name":       {text: name},
		"file_path":  {text: "Return this file of the skill instead of its instructions"},
		"activation": {text: handleText},
	}
	if force {
		args["force"] = argument{
			text: "Return instructions that this conversation was sent less than a minute ago"}
	}
	return newTool(ToolLoad, "Load skill", description, args.schema(loadSchema()), true, false, false)
}

// handleText describes the argument activation.
const handleText = "The activation handle, if load_skill returned one"

func readTool() mcp.Tool {
	args := arguments{
		"skill": {text: "Path or unique name of the skill"},
		"path":  {text: "Path of the file in the skill, as load_skill lists it"},
		"maxBytes": {text: fmt.Sprintf("Most bytes to return (default %d)", defaultReadBytes),
			least: new(0.0), most: new(float64(maxReadBytes))},
		"offset":     {text: "Byte to start at", least: new(0.0)},
		"activation": {text: handleText},
	}
	const description = "Read a file of a skill (references, templates, assets, scripts) or list a " +
		"directory of it. The end of a cut text names the offset to continue with. Pictures (PNG, JPEG, " +
		"GIF, WebP) are shown. Reads are recorded."
	schema := args.schema(readSchema())
	return newTool(ToolRead, "Read skill resource", description, schema, true, false, false)
}

func searchTool() mcp.Tool {
	args := arguments{
		"query":  {text: "2 to 6 keywords: what the skill is for, file types, names of products"},
		"cursor": {text: "Where to continue, as the end of the page before it says"},
	}
	const description = "Find skills by words of their names, descriptions and tags, best match first. " +
		"Use it when the list in load_skill does not show every skill in full. Send keywords that a " +
		"description would have, not the user's sentence; if none of the hits fits, try other " +
		"words for it. " +
		"Then call load_skill with the path before the colon."
	return newTool(ToolSearch, "Search skills", description, args.schema(searchSchema()), true, false, false)
}

func runTool(network, files bool, usual, most time.Duration) mcp.Tool {
	args := arguments{
		"skill": {text: "Path or unique name of the skill"},
		"path":  {text: "Path of the script in the skill"},
		"args":  {text: "Arguments; no shell expands them"},
		"cwd":   {text: "Working directory below /workspace, /skill, /out or /tmp"},
		"timeoutMs": {text: fmt.Sprintf("Milliseconds until it is killed (default %d)", usual.Milliseconds()),
			least: new(1.0), most: new(float64(most.Milliseconds()))},
		"stdin":      {text: "Standard input, at most 1 MiB"},
		"activation": {text: handleText},
	}
	reach := "there is no network"
	if network {
		reach = "it reaches only what was granted"
	}
	sees := "It sees none of the user's files: pass their text on stdin. It starts in /out"
	if files {
		sees = "It starts in /workspace, the user's directory, if that is granted: name files there by " +
			"relative paths"
	}
	description := "Run an allowed script of a loaded skill, in a sandbox: its skill " +
		"is read-only at /skill, and " + reach + ". " + sees + ", and what it leaves in /out is returned. " +
		"Any exit code is a normal result. Do not retry a refusal unchanged."
	return newTool(ToolRun, "Run skill script", description, args.schema(runSchema()), false, true, network)
}

// newTool sets all three hints, because clients assume the worst of a missing one.
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

// arguments describe those arguments of a tool, by name, that a client is shown.
type arguments map[string]argument

// argument describes an argument beyond its type.
type argument struct {
	text        string   // for the model
	least, most *float64 // nil: not bounded
}

// The schemas of the tools' arguments, inferred from the structs that they are decoded into, once: inferring
// takes longer than the rest of a list of tools.
var (
	loadSchema   = sync.OnceValue(inferred[loadArgs])
	readSchema   = sync.OnceValue(inferred[readArgs])
	searchSchema = sync.OnceValue(inferred[searchArgs])
	runSchema    = sync.OnceValue(inferred[runArgs])
)

// inferred returns the schema of a struct of arguments. Null is not a value of any of them: a pointer or a
// slice is nil if the argument is missing. Unknown arguments are left to the handlers, which ignore them.
func inferred[T any]() *jsonschema.Schema {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		// The types are known here, so this is a mistake in this program.
		panic("mcpserver: no schema: " + err.Error())
	}
	schema.AdditionalProperties = nil
	for _, p := range schema.Properties {
		if len(p.Types) == 2 && p.Types[0] == "null" {
			p.Type, p.Types = p.Types[1], nil
		}
	}
	return schema
}

// schema returns the JSON of an inferred schema with its arguments described, in their order. An
// argument that is not described is left out.
func (a arguments) schema(of *jsonschema.Schema) json.RawMessage {
	schema := *of
	schema.Properties = make(map[string]*jsonschema.Schema, len(a))
	for name, one := range a {
		p := *of.Properties[name]
		p.Description, p.Minimum, p.Maximum = one.text, one.least, one.most
		schema.Properties[name] = &p
	}
	raw, err := json.Marshal(&schema)
	if err != nil {
		panic("mcpserver: a schema is not JSON: " + err.Error())
	}
	return raw
}
