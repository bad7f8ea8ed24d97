package mcpserver

import (
	"context"
	"errors"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
)

// askApproval names the one input request of a call that needs an approval.
const askApproval = "approval"

// fieldDecision is the field of the form with the decision; the others are its values. Clients show the
// values unchanged, Claude Code their first 46 characters; "yes" or "no" would read as an answer to the whole
// question.
const (
	fieldDecision   = "decision"
	decisionOnce    = "Run it once"
	decisionSession = "Run it, and this script for the whole session"
	decisionNo      = "Do not run it"
)

// asksWithFields reports whether a client truncates the lines of a message, so that long texts of a question
// need fields of their own.
func asksWithFields(ctx context.Context) bool { return wire.ClientOf(ctx).Info.Name == "claude-code" }

// canAsk reports whether the client declares that it can show a form to its user. Any other client is never
// asked, and its call is refused.
func canAsk(ctx context.Context) bool {
	asks := wire.ClientOf(ctx).Capabilities.Elicitation
	return asks != nil && (asks.Form != nil || asks.URL == nil)
}

// elicitation returns the form of a question. Accepting it is the approval, unless the decision is no.
func elicitation(ctx context.Context, q *session.Question) mcp.ElicitationParams {
	decision := map[string]any{"type": "string", "title": "Decision"}
	// The first value is no, because a client with its cursor there must not run the script at a stray key. A
	// client with fields must go to the end of the form to accept it.
	values := []any{decisionNo, decisionOnce}
	if q.Remember {
		values = append(values, decisionSession)
	}
	schema := map[string]any{"type": "object", "required": []string{fieldDecision}}
	if asksWithFields(ctx) {
		values, decision["default"] = append(values[1:], decisionNo), decisionOnce
		delete(schema, "required")
	}
	decision["enum"] = values
	// Clients sort the properties by name.
	properties := map[string]any{fieldDecision: decision}
	for _, field := range q.Fields {
		properties[field.Name] = map[string]any{"type": "string", "title": field.Title, "default": field.Text}
	}
	schema["properties"] = properties
	return mcp.ElicitationParams{Mode: mcp.ElicitationModeForm, Message: q.Message, RequestedSchema: schema}
}

// answerOf reads the answer to a question from a repeated call; it returns nil if the call has none, so that
// the user is asked.
//
// Errors: *wire.Error for an answer that is not the result of an elicitation.
func answerOf(ctx context.Context, request mcp.CallToolRequest) (*session.Answer, error) {
	if _, given := request.Params.InputResponses[askApproval]; !given {
		return nil, nil
	}
	response := request.Params.InputResponses[askApproval]
	if response.DecodeFor(mcp.MethodElicitationCreate) != nil || response.Elicitation == nil {
		return nil, &wire.Error{Code: mcp.INVALID_PARAMS,
			Message: "inputResponses." + askApproval + " is not the result of an elicitation"}
	}
	return formAnswer(request.Params.RequestState, response.Elicitation, asksWithFields(ctx)), nil
}

// formAnswer reads a returned form. A form with a default decision was accepted unchanged if it has that
// decision or none; another form without a decision was not filled in.
func formAnswer(state string, result *mcp.ElicitationResult, begun bool) *session.Answer {
	a := &session.Answer{State: state, Action: string(result.Action)}
	fields, isObject := result.Content.(map[string]any)
	a.Content = fields
	decision, given := fields[fieldDecision]
	for key := range fields {
		// Another reader might take such a key for the field.
		given = given || strings.EqualFold(key, fieldDecision)
	}
	if result.Action != mcp.ElicitationResponseActionAccept {
		return a
	}
	switch {
	case result.Content == nil, isObject && !given:
		a.Unclear = !begun
	case decision == decisionOnce:
		a.Chosen = !begun
	case decision == decisionSession:
		a.Remember, a.Chosen = true, true
	case decision == decisionNo:
		a.Action, a.Chosen = string(mcp.ElicitationResponseActionDecline), true
	default:
		a.Unclear = true
	}
	return a
}

// elicit asks a client of an older revision while its call waits. Any failure is a refusal.
func (s *Server) elicit(ctx context.Context, q *session.Question) *session.Answer {
	ctx, cancel := context.WithDeadline(ctx, q.Until)
	defer cancel()
	var result mcp.ElicitationResult
	if err := wire.Ask(ctx, mcp.MethodElicitationCreate, elicitation(ctx, q), &result); err != nil {
		answer := canceled(q.State)
		answer.Failed = errors.Is(err, wire.ErrFailed) || errors.Is(err, wire.ErrNotAsked)
		return answer
	}
	return formAnswer(q.State, &result, asksWithFields(ctx))
}

func canceled(state string) *session.Answer {
	return &session.Answer{State: state, Action: string(mcp.ElicitationResponseActionCancel)}
}
