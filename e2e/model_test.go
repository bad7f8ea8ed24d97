package e2e

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// model stands in for a model behind the interfaces of Anthropic, OpenAI and Google: it plays turns, and
// keeps each request of a client. A turn is found by the ids of the results that a request brings, so that
// requests that are repeated, or ask for a title, do not disturb it.
type model struct {
	url   string
	turns []turn

	mu       sync.Mutex
	requests []map[string]any
	results  map[string]modelResult
}

// turn is one answer of the model: calls at once, or a text.
type turn []modelCall

// modelCall names a tool as its server does; raw has the name as the client offers it.
type modelCall struct {
	tool string
	args map[string]any
	raw  bool
}

// modelResult is a result as a client handed it to the model.
type modelResult struct {
	text    string
	isError bool // known of Claude Code only
}

// offer is a tool that a client offers in a request.
type offer struct {
	name, space string // space is Codex's namespace of a server
	custom      bool   // takes text in place of an object
}

// plannedCall is a call of a turn for the tool that the client offers.
type plannedCall struct {
	id string
	offer
	args map[string]any
}

func newModel(t *testing.T, turns []turn) *model {
	m := &model{turns: turns, results: map[string]modelResult{}}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// result is what the client handed over for call i of a turn.
func (m *model) result(t *testing.T, turn, i int) modelResult {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	got, ok := m.results[fmt.Sprintf("T%d_%d", turn, i)]
	if !ok {
		t.Errorf("the client sent no result of call %d of turn %d", i, turn)
	}
	return got
}

// first is all text of the first request that offers tools.
func (m *model) first() string { return strings.Join(texts(m.kept(0)), "\n") }

// pictures counts the pictures in the last request.
func (m *model) pictures() int {
	n := 0
	walk(m.kept(-1), func(key string, value any) {
		switch s, _ := value.(string); {
		case key == "type" && (s == "image" || s == "input_image" || s == "image_url"):
			n++
		case key == "mimeType" && strings.HasPrefix(s, "image/"):
			n++
		}
	})
	return n
}

func (m *model) kept(i int) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.requests) == 0 {
		return nil
	}
	return m.requests[(i+len(m.requests))%len(m.requests)]
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		zipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		in = zipped
	}
	var body map[string]any
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(in).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	path := strings.ToLower(r.URL.Path)
	switch {
	case strings.HasSuffix(path, "/messages"):
		m.messages(w, body)
	case strings.HasSuffix(path, "/responses"):
		m.responses(w, body)
	case strings.HasSuffix(path, "/chat/completions"):
		m.chat(w, body)
	case strings.Contains(path, "generatecontent"):
		m.generate(w, body, strings.Contains(path, "stream"))
	default:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"data":[],"models":[],"object":"list","has_more":false,"input_tokens":1}`)
	}
}

// answer plays the turn after those whose results a request brings. It is a text without calls.
func (m *model) answer(body map[string]any, offers []offer,
	results map[string]modelResult) (string, []plannedCall) {
	if len(offers) == 0 {
		return "aside", nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, body)
	next, searched := 0, false
	for id, result := range results {
		kind, n, i := parseCall(id)
		if kind == "T" {
			m.results[fmt.Sprintf("T%d_%d", n, i)], next = result, max(next, n+1)
		}
	}
	for id := range results {
		kind, n, _ := parseCall(id)
		searched = searched || kind == "S" && n == next
	}
	if next >= len(m.turns) {
		return "done", nil
	}
	var calls []plannedCall
	var deferred []string
	for i, c := range m.turns[next] {
		found, ok := pick(c, offers)
		if !ok {
			// A client may defer a tool, and name it in a text for its search.
			full := regexp.MustCompile(`mcp__[A-Za-z0-9_-]*?__` + c.tool +
				`\b`).FindString(strings.Join(texts(body), "\n"))
			found = offer{name: c.tool}
			if full != "" {
				found.name = full
			}
			deferred = append(deferred, found.name)
		}
		calls = append(calls, plannedCall{fmt.Sprintf("T%d_%d", next, i), found, c.args})
	}
	if len(deferred) == 0 || searched {
		return "", calls
	}
	for _, o := range offers {
		search := plannedCall{fmt.Sprintf("S%d_0", next), o, nil}
		switch o.name {
		case "ToolSearch":
			search.args = map[string]any{"query": "select:" + strings.Join(deferred, ","), "max_results": 10}
		case "tool_search":
			search.args = map[string]any{"query": strings.Join(deferred, " "), "limit": 10}
		default:
			continue
		}
		return "", []plannedCall{search}
	}
	return "", calls
}

var callID = regexp.MustCompile(`([TS])(\d+)_(\d+)$`)

func parseCall(id string) (kind string, turn, i int) {
	if found := callID.FindStringSubmatch(id); found != nil {
		kind = found[1]
		turn, _ = strconv.Atoi(found[2])
		i, _ = strconv.Atoi(found[3])
	}
	return kind, turn, i
}

// pick returns the offered tool that a call means: clients put their own words before a server's name of it.
func pick(c modelCall, offers []offer) (offer, bool) {
	if c.raw {
		return offer{name: c.tool}, true
	}
	i := slices.IndexFunc(offers, func(o offer) bool {
		return o.name == c.tool || strings.HasSuffix(o.name, "_"+c.tool) ||
			strings.HasSuffix(o.name, "-"+c.tool)
	})
	if i < 0 {
		return offer{}, false
	}
	return offers[i], true
}

// messages is Anthropic's interface, which Claude Code uses.
func (m *model) messages(w http.ResponseWriter, body map[string]any) {
	var offers []offer
	for _, tool := range items(body["tools"]) {
		offers = append(offers, offer{name: str(tool["name"])})
	}
	results := map[string]modelResult{}
	for _, message := range items(body["messages"]) {
		for _, block := range items(message["content"]) {
			if block["type"] == "tool_result" {
				failed, _ := block["is_error"].(bool)
				results[str(block["tool_use_id"])] = modelResult{strings.Join(texts(block["content"]), "\n"),
					failed}
			}
		}
	}
	text, calls := m.answer(body, offers, results)
	usage := map[string]any{"input_tokens": 1, "output_tokens": 1}
	message := map[string]any{"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
		"content":     []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": usage}
	events := []any{map[string]any{"type": "message_start", "message": message}}
	block := func(start, delta map[string]any) {
		i := len(events) / 3
		events = append(events, map[string]any{"type": "content_block_start", "index": i,
			"content_block": start},
			map[string]any{"type": "content_block_delta", "index": i, "delta": delta},
			map[string]any{"type": "content_block_stop", "index": i})
	}
	stop := "end_turn"
	if text != "" {
		block(map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": text})
	}
	for _, c := range calls {
		stop = "tool_use"
		block(map[string]any{"type": "tool_use", "id": "toolu_" + c.id, "name": c.name,
			"input": map[string]any{}},
			map[string]any{"type": "input_json_delta", "partial_json": jsonText(c.args)})
	}
	events = append(events, map[string]any{"type": "message_delta",
		"delta": map[string]any{"stop_reason": stop}, "usage": usage},
		map[string]any{"type": "message_stop"})
	stream(w, events...)
}

// inCode calls a tool from the program that Codex lets some models write.
const inCode = `const found = ALL_TOOLS.find(tool => tool.name.endsWith(%s));
if (!found) { text("no such tool: " + ALL_TOOLS.map(tool => tool.name).join(" ")); exit(); }
try { text(await tools[found.name](%s)); } catch (err) { text("failed: " + err); }
`

// responses is OpenAI's interface of that name, which Codex uses.
func (m *model) responses(w http.ResponseWriter, body map[string]any) {
	var offers []offer
	var collect func(tool map[string]any, space string)
	collect = func(tool map[string]any, space string) {
		if tool["type"] == "namespace" {
			for _, inner := range items(tool["tools"]) {
				collect(inner, str(tool["name"]))
			}
			return
		}
		name := str(tool["name"])
		if name == "" {
			name = str(tool["type"])
		}
		offers = append(offers, offer{name, space, tool["type"] == "custom"})
	}
	for _, tool := range items(body["tools"]) {
		collect(tool, "")
	}
	results := map[string]modelResult{}
	for _, item := range items(body["input"]) {
		switch kind := str(item["type"]); {
		case kind == "additional_tools" || kind == "tool_search_output":
			for _, tool := range items(item["tools"]) {
				collect(tool, "")
			}
			results[str(item["call_id"])] = modelResult{}
		case strings.HasSuffix(kind, "_output"):
			results[str(item["call_id"])] = modelResult{text: strings.Join(texts(item["output"]), "\n")}
		}
	}
	text, calls := m.answer(body, offers, results)
	exec := slices.IndexFunc(offers, func(o offer) bool { return o.name == "exec" && o.custom })
	var output []any
	for _, c := range calls {
		item := map[string]any{"type": "function_call", "id": "fc_" + c.id, "call_id": "call_" + c.id,
			"name": c.name, "arguments": jsonText(c.args), "status": "completed"}
		switch {
		case c.name == "tool_search":
			item = map[string]any{"type": "tool_search_call", "call_id": "call_" + c.id,
				"execution": "client", "status": "completed", "arguments": c.args}
		case exec >= 0 && c.space == "" && !slices.Contains(offers, c.offer):
			item = map[string]any{"type": "custom_tool_call", "id": "ctc_" + c.id, "call_id": "call_" + c.id,
				"name": "exec", "status": "completed",
				"input": fmt.Sprintf(inCode, jsonText(c.name), jsonText(c.args))}
			c.space = offers[exec].space
		}
		if c.space != "" {
			item["namespace"] = c.space
		}
		output = append(output, item)
	}
	if text != "" {
		output = append(output, map[string]any{"type": "message", "id": "msg_1", "role": "assistant",
			"status":  "completed",
			"content": []any{map[string]any{"type": "output_text", "text": text, "annotations": []any{}}}})
	}
	response := func(status string, output []any) map[string]any {
		return map[string]any{"id": "resp_1", "object": "response", "created_at": time.Now().Unix(),
			"status": status, "model": body["model"], "output": output,
			"usage": map[string]any{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
				"input_tokens_details":  map[string]any{"cached_tokens": 0},
				"output_tokens_details": map[string]any{"reasoning_tokens": 0}}}
	}
	events := []any{map[string]any{"type": "response.created", "response": response("in_progress", []any{})}}
	for i, item := range output {
		events = append(events, map[string]any{"type": "response.output_item.added", "output_index": i,
			"item": item},
			map[string]any{"type": "response.output_item.done", "output_index": i, "item": item})
	}
	stream(w, append(events, map[string]any{"type": "response.completed",
		"response": response("completed", output)})...)
}

// chat is OpenAI's older interface, which OpenCode uses with the provider that the tests configure.
func (m *model) chat(w http.ResponseWriter, body map[string]any) {
	var offers []offer
	for _, tool := range items(body["tools"]) {
		function, _ := tool["function"].(map[string]any)
		offers = append(offers, offer{name: str(function["name"])})
	}
	results := map[string]modelResult{}
	for _, message := range items(body["messages"]) {
		if message["role"] == "tool" {
			results[str(message["tool_call_id"])] = modelResult{text: strings.Join(texts(message["content"]),
				"\n")}
		}
	}
	text, calls := m.answer(body, offers, results)
	delta, finish := map[string]any{"role": "assistant", "content": text}, "stop"
	for i, c := range calls {
		made, _ := delta["tool_calls"].([]any)
		delta["tool_calls"] = append(made, map[string]any{"index": i, "id": "call_" + c.id,
			"type":     "function",
			"function": map[string]any{"name": c.name, "arguments": jsonText(c.args)}})
		finish = "tool_calls"
	}
	chunk := func(delta map[string]any, finish any) map[string]any {
		return map[string]any{"id": "c1", "object": "chat.completion.chunk", "created": time.Now().Unix(),
			"model":   body["model"],
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
			"usage":   map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
	}
	stream(w, chunk(delta, nil), chunk(map[string]any{}, finish), json.RawMessage("[DONE]"))
}

// generate is Google's interface, which Gemini CLI uses.
func (m *model) generate(w http.ResponseWriter, body map[string]any, streamed bool) {
	var offers []offer
	for _, tool := range items(body["tools"]) {
		for _, function := range items(tool["functionDeclarations"]) {
			offers = append(offers, offer{name: str(function["name"])})
		}
	}
	results := map[string]modelResult{}
	for _, content := range items(body["contents"]) {
		for _, part := range items(content["parts"]) {
			if answer, ok := part["functionResponse"].(map[string]any); ok {
				results[str(answer["id"])] = modelResult{text: strings.Join(texts(answer["response"]), "\n")}
			}
		}
	}
	text, calls := m.answer(body, offers, results)
	var parts []any
	if text != "" {
		parts = append(parts, map[string]any{"text": text})
	}
	for _, c := range calls {
		parts = append(parts, map[string]any{"functionCall": map[string]any{"id": "call_" + c.id,
			"name": c.name, "args": c.args}, "thoughtSignature": "c2ln"})
	}
	answer := map[string]any{"candidates": []any{map[string]any{"index": 0, "finishReason": "STOP",
		"content": map[string]any{"role": "model", "parts": parts}}},
		"usageMetadata": map[string]any{"promptTokenCount": 1, "candidatesTokenCount": 1,
			"totalTokenCount": 2}, "modelVersion": "1"}
	if streamed {
		stream(w, answer)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, jsonText(answer))
}

// stream sends events as all four interfaces do.
func stream(w http.ResponseWriter, events ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range events {
		if named, ok := event.(map[string]any); ok && named["type"] != nil {
			fmt.Fprintf(w, "event: %s\n", named["type"])
		}
		text, ok := event.(json.RawMessage)
		if !ok {
			text = json.RawMessage(jsonText(event))
		}
		fmt.Fprintf(w, "data: %s\n\n", text)
	}
}

func jsonText(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

// items are the objects of a list.
func items(v any) []map[string]any {
	list, _ := v.([]any)
	var objects []map[string]any
	for _, item := range list {
		if object, ok := item.(map[string]any); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

// walk visits the values of objects, each with its key, depth first.
func walk(v any, visit func(key string, value any)) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			visit(key, value)
			walk(value, visit)
		}
	case []any:
		for _, value := range v {
			visit("", value)
			walk(value, visit)
		}
	}
}

// texts are the strings of a value.
func texts(v any) []string {
	if s, ok := v.(string); ok {
		return []string{s}
	}
	var found []string
	walk(v, func(_ string, value any) {
		if s, ok := value.(string); ok {
			found = append(found, s)
		}
	})
	return found
}
