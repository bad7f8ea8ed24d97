package mcpserver

import (
	"encoding/json"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
)

// The form of a client with fields begins with a decision, so that a form that comes back as it was sent has
// no choice of anybody; another form has none without a decision.
func TestFormAnswer(t *testing.T) {
	for _, tt := range []struct {
		begun  bool // the form began with a decision
		result string
		want   session.Answer
	}{
		{true, `{"action":"accept"}`, session.Answer{Action: "accept"}},
		{true, `{"action":"accept","content":{}}`, session.Answer{Action: "accept"}},
		{true, `{"action":"accept","content":{"decision":"Run it once"}}`, session.Answer{Action: "accept"}},
		{true, `{"action":"accept","content":{"decision":"Do not run it"}}`, session.Answer{Action: "decline", Chosen: true}},
		{false, `{"action":"accept"}`, session.Answer{Action: "accept", Unclear: true}},
		{false, `{"action":"accept","content":{}}`, session.Answer{Action: "accept", Unclear: true}},
		{false, `{"action":"accept","content":7}`, session.Answer{Action: "accept", Unclear: true}},
		{false, `{"action":"accept","content":{"Decision":"Run it once"}}`, session.Answer{Action: "accept", Unclear: true}},
		{false, `{"action":"accept","content":{"decision":"yes"}}`, session.Answer{Action: "accept", Unclear: true}},
		{false, `{"action":"accept","content":{"decision":"Run it once"}}`, session.Answer{Action: "accept", Chosen: true}},
		{false, `{"action":"accept","content":{"decision":"Run it, and this script for the whole session"}}`, session.Answer{Action: "accept", Chosen: true, Remember: true}},
		{false, `{"action":"accept","content":{"decision":"Do not run it"}}`, session.Answer{Action: "decline", Chosen: true}},
		{false, `{"action":"decline","content":{"decision":"Run it once"}}`, session.Answer{Action: "decline"}},
		{false, `{"action":"cancel"}`, session.Answer{Action: "cancel"}},
	} {
		var result mcp.ElicitationResult
		if err := json.Unmarshal([]byte(tt.result), &result); err != nil {
			t.Fatal(err)
		}
		got := *formAnswer("", &result, tt.begun)
		got.Content = nil
		if got.State != "" || got.Action != tt.want.Action || got.Remember != tt.want.Remember ||
			got.Chosen != tt.want.Chosen || got.Unclear != tt.want.Unclear {
			t.Errorf("begun %v, %s: %+v, want %+v", tt.begun, tt.result, got, tt.want)
		}
	}
}
