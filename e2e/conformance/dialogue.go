package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/wire"
)

// dialogue is the sequence of questions that a tool or prompt asks the client before it answers, one round
// after the other. For older revisions, bridge turns the questions into requests of the server.
type dialogue struct {
	name   string
	rounds []mcp.InputRequests
	// stateful dialogues give the client a signed state of the round, which it must return.
	stateful bool
	// modest dialogues omit questions that the client cannot answer; other dialogues are refused.
	modest bool
}

// turn is the state of a dialogue: questions to ask, or the answers once all questions are answered.
type turn struct {
	mcp.MultiRoundTripResult
	answers string
}

// addDialogues registers the tools that ask the client.
func (f *fixture) addDialogues() {
	var (
		asksName    = ask("What is your name?", `{"name":{"type":"string"}}`, "name")
		asksColor   = ask("What is your favourite colour?", `{"color":{"type":"string"}}`, "color")
		asksConsent = ask("Please confirm", `{"ok":{"type":"boolean"}}`, "ok")
		asksUser    = ask("Who are you?", `{"username":{"type":"string"},"email":{"type":"string"}}`,
			"username", "email")
		samples = sample("What is the capital of France?")
		lists   = mcp.NewRootsInputRequest()
	)
	for _, d := range []dialogue{
		{name: "test_elicitation", rounds: one("user", asksUser)},
		{name: "test_elicitation_sep1034_defaults",
			rounds: one("defaults", ask("Accept the defaults", schemaOfDefaults))},
		{name: "test_elicitation_sep1330_enums", rounds: one("enums", ask("Choose", schemaOfEnums))},
		{name: "test_sampling", rounds: one("answer", samples)},
		{name: "test_missing_capability", rounds: one("answer", samples)},
		{name: "test_streaming_elicitation", rounds: one("user_name", asksName)},
		{name: "test_input_required_result_elicitation", rounds: one("user_name", asksName)},
		{name: "test_input_required_result_sampling", rounds: one("capital_question", samples)},
		{name: "test_input_required_result_list_roots", rounds: one("client_roots", lists)},
		{name: "test_input_required_result_request_state", rounds: one("confirm", asksConsent),
			stateful: true},
		{name: "test_input_required_result_tampered_state", rounds: one("confirm", asksConsent),
			stateful: true},
		{name: "test_input_required_result_multiple_inputs", stateful: true,
			rounds: []mcp.InputRequests{{"user_name": asksName, "greeting": samples, "client_roots": lists}}},
		{name: "test_input_required_result_multi_round", stateful: true,
			rounds: []mcp.InputRequests{{"step1": asksName}, {"step2": asksColor}}},
		{name: "test_input_required_result_capabilities", modest: true,
			rounds: []mcp.InputRequests{{"user_name": asksName, "greeting": samples, "client_roots": lists}}},
	} {
		f.addTool(d.name, "", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			at, failure := f.take(&d, wire.ClientOf(ctx).Capabilities, r.Params.MultiRoundTripParams)
			if failure != nil {
				return nil, failure
			}
			if at.InputRequests == nil {
				return mcp.NewToolResultText("state-ok: " + at.answers), nil
			}
			result := &mcp.CallToolResult{MultiRoundTripResult: at.MultiRoundTripResult}
			result.ResultType = mcp.ResultTypeInputRequired
			return result, nil
		})
	}
}

// bridge calls a tool for a client of an older revision: it sends the questions in the results to the client.
func (f *fixture) bridge(ctx context.Context, request mcp.CallToolRequest, called tool) (any, error) {
	for {
		made, err := called.call(ctx, request)
		result, ok := made.(*mcp.CallToolResult)
		if err != nil || !ok || result.ResultType != mcp.ResultTypeInputRequired {
			return made, err
		}
		request.Params.InputResponses = mcp.InputResponses{}
		for id, question := range result.InputRequests {
			var params any
			switch question.Method {
			case mcp.MethodElicitationCreate:
				params = question.Elicitation
			case mcp.MethodSamplingCreateMessage:
				params = question.Sampling
			}
			var answer json.RawMessage
			if err := wire.Ask(ctx, question.Method, params, &answer); err != nil {
				return nil, err
			}
			var response mcp.InputResponse
			if err := json.Unmarshal(answer, &response); err != nil {
				return nil, err
			}
			request.Params.InputResponses[id] = response
		}
		request.Params.RequestState = result.RequestState
	}
}

func one(id string, request mcp.InputRequest) []mcp.InputRequests {
	return []mcp.InputRequests{{id: request}}
}

// ask elicits an object with these properties from the user.
func ask(message, properties string, required ...string) mcp.InputRequest {
	schema := map[string]any{"type": "object", "properties": json.RawMessage(properties)}
	if required != nil {
		schema["required"] = required
	}
	return mcp.NewElicitationInputRequest(mcp.ElicitationParams{Message: message, RequestedSchema: schema})
}

// sample asks the client's model.
func sample(text string) mcp.InputRequest {
	return mcp.NewSamplingInputRequest(mcp.CreateMessageParams{
		Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(text)}},
		MaxTokens: 100,
	})
}

// take advances a dialogue by one step, from the state and the answers in a request.
func (f *fixture) take(d *dialogue, has mcp.ClientCapabilities,
	given mcp.MultiRoundTripParams) (turn, *wire.Error) {
	round := 0
	if d.stateful && given.RequestState != "" {
		var ok bool
		round, ok = f.roundOf(d, given.RequestState)
		if !ok {
			return turn{}, &wire.Error{Code: mcp.INVALID_PARAMS,
				Message: "requestState is not one this server made"}
		}
	}
	// Answers without a state are to questions that this server did not ask.
	if d.stateful && given.RequestState == "" || !answered(d.rounds[round], given.InputResponses) {
		return f.questions(d, round, has)
	}
	round++
	if round < len(d.rounds) {
		return f.questions(d, round, has)
	}
	answers, err := json.Marshal(given.InputResponses)
	if err != nil {
		return turn{}, &wire.Error{Code: mcp.INVALID_PARAMS, Message: err.Error()}
	}
	return turn{answers: string(answers)}, nil
}

// questions returns the questions of a round for a client that can answer them.
func (f *fixture) questions(d *dialogue, round int, has mcp.ClientCapabilities) (turn, *wire.Error) {
	able := map[mcp.MCPMethod]struct {
		declared bool
		name     string
	}{
		mcp.MethodElicitationCreate:     {has.Elicitation != nil, "elicitation"},
		mcp.MethodSamplingCreateMessage: {has.Sampling != nil, "sampling"},
		mcp.MethodListRoots:             {has.Roots != nil, "roots"},
	}
	at := turn{MultiRoundTripResult: mcp.MultiRoundTripResult{InputRequests: mcp.InputRequests{}}}
	missing := map[string]any{}
	for id, request := range d.rounds[round] {
		if needs := able[request.Method]; needs.declared {
			at.InputRequests[id] = request
		} else {
			missing[needs.name] = map[string]any{}
		}
	}
	if len(missing) > 0 && !d.modest {
		return turn{}, &wire.Error{
			Code:    mcp.MISSING_REQUIRED_CLIENT_CAPABILITY,
			Message: "the client did not declare what this needs",
			Data:    map[string]any{"requiredCapabilities": missing},
		}
	}
	if d.stateful {
		at.RequestState = f.stateOf(d, round)
	}
	return at, nil
}

// answered reports whether every request has an answer of its kind.
func answered(requests mcp.InputRequests, responses mcp.InputResponses) bool {
	for id, request := range requests {
		response, ok := responses[id]
		if !ok || response.DecodeFor(request.Method) != nil {
			return false
		}
	}
	return true
}

func newKey() []byte { return []byte(rand.Text()) }

// stateOf returns a signed state of the round, which the client can neither forge nor change.
func (f *fixture) stateOf(d *dialogue, round int) string {
	mac := hmac.New(sha256.New, f.key)
	fmt.Fprintf(mac, "%s %d", d.name, round)
	return strconv.Itoa(round) + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (f *fixture) roundOf(d *dialogue, state string) (round int, ok bool) {
	number, _, _ := strings.Cut(state, ".")
	round, err := strconv.Atoi(number)
	ok = err == nil && round >= 0 && round < len(d.rounds) &&
		// The suite changes the state, and expects a refusal.
		hmac.Equal([]byte(state), []byte(f.stateOf(d, round)))
	return round, ok
}

// schemaOfDefaults has a default value of each primitive type.
const schemaOfDefaults = `{
"name":{"type":"string","default":"John Doe"},
"age":{"type":"integer","default":30},
"score":{"type":"number","default":95.5},
"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},
"verified":{"type":"boolean","default":true}}`

// schemaOfEnums has each form of an enumeration.
const schemaOfEnums = `{
"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},
	{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],
	"enumNames":["Option One","Option Two","Option Three"]},
"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},
	{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}`
