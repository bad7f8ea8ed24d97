package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills/policy"
)

// Keys read from the _meta of a request.
const (
	metaPromptSlot = "skillsd/prompt-slot"
	metaMode       = "skillsd/mode"
	metaToolCallID = "skillsd/tool-call-id"
	metaSession    = "skillsd/session"
	metaActivation = "skillsd/activation"
	metaProfile    = "skillsd/profile"
	metaParent     = "skillsd/parent-session"
	metaLease      = "skillsd/browser-lease"
)

// localPrincipal is who speaks on stdio: the process's own user, whose evidence counts.
var localPrincipal = policy.Principal{Name: "local", Evidence: true}

// LocalPrincipal is who speaks on stdio, and to a command of the same user that does what a tool does.
func LocalPrincipal() policy.Principal { return localPrincipal }

// callOf gathers what is known of a request beside its arguments.
func (s *Server) callOf(ctx context.Context, method string, meta map[string]any) (session.Call, error) {
	client := wire.ClientOf(ctx)
	principal, remote := principalOf(ctx)
	call := session.Call{
		Method: method, Principal: principal, Client: clientName(client.Info), Protocol: client.Version,
		ToolCallID: toolCallID(meta, wire.RequestID(ctx)), Remote: remote, ClientSession: clientSession(meta), Turn: turn(meta),
		Records: recorderOf(ctx),
	}
	call.Handle, _ = meta[metaActivation].(string)
	call.Parent, _ = meta[metaParent].(string)
	var err error
	if call.Profile, err = s.profileOf(meta); err != nil {
		return call, err
	}
	if !remote {
		call.ClientSession = cmp.Or(call.ClientSession, s.cfg.ClientSession)
		call.Workspace = s.workspaceOf(meta)
	} else {
		call.Opens = method == ToolLoad || method == methodGetPrompt
		if !client.Modern {
			call.ProtocolSession = client.SessionID
		}
	}
	if !principal.Evidence {
		s.ignoreEvidence(ctx, meta)
		return call, nil
	}
	if slot, ok := meta[metaPromptSlot]; ok {
		raw, err := json.Marshal(slot)
		if err != nil {
			return call, err
		}
		if call.Slot, err = policy.ParsePromptSlot(raw); err != nil {
			return call, &session.Error{Code: session.CodePromptSlotInvalid, Message: err.Error(),
				Remedy: "send a PromptSlotBound object in _meta, or none", Err: err}
		}
	}
	if err := believe(&call, meta); err != nil {
		return call, err
	}
	if lease, ok := meta[metaLease]; ok {
		raw, err := json.Marshal(lease)
		if err != nil {
			return call, err
		}
		if call.Lease, err = policy.ParseLease(raw); err != nil {
			return call, invalidArguments(err.Error(), "send {leaseId, cdpUrl, expiresAt} in _meta, or none")
		}
	}
	if mode, ok := meta[metaMode]; ok {
		text, _ := mode.(string)
		parsed, err := policy.ParseMode(text)
		if err != nil {
			return call, invalidArguments(fmt.Sprintf("_meta[%q] is no enforcement mode", metaMode), "use disabled, observe, enforce-explicit or enforce-strict")
		}
		call.Mode = parsed
	}
	return call, nil
}

// profileOf is the profile that a request narrows itself to. One that is not there is refused, so that
// a client does not take it for narrowing.
func (s *Server) profileOf(meta map[string]any) (string, error) {
	value, ok := meta[metaProfile]
	if !ok {
		return "", nil
	}
	name, _ := value.(string)
	if !s.cfg.Policy.HasProfile(name) {
		return "", invalidArguments(fmt.Sprintf("_meta[%q] is no profile of this server", metaProfile), "use a profile that the operator configured, or none")
	}
	return name, nil
}

// ignoreEvidence logs what a principal says that it is not believed.
func (s *Server) ignoreEvidence(ctx context.Context, meta map[string]any) {
	for _, key := range []string{metaPromptSlot, metaMode, metaLease, metaRunID, metaInputLabels} {
		if _, ok := meta[key]; ok {
			principal, _ := principalOf(ctx)
			s.cfg.Logger.WarnContext(ctx, "not believed from this principal", slog.String("principal", principal.Name), slog.String("key", key))
		}
	}
}

// clientSession is the client's own id of its session, under the first key that names one.
func clientSession(meta map[string]any) string {
	for _, key := range []string{metaSession, "threadId", "sessionId"} {
		if id, ok := meta[key].(string); ok && id != "" {
			return id
		}
	}
	return ""
}

// turn is the client's own id of the model's turn, under the first key that names one.
func turn(meta map[string]any) string {
	const codexTurn = "x-codex-turn-metadata"
	more, _ := meta[codexTurn].(map[string]any)
	for _, id := range []any{meta["turn_id"], meta["turnId"], more["turn_id"]} {
		if id, ok := id.(string); ok && id != "" {
			return clip(id)
		}
	}
	return ""
}

// toolCallID is the client's own id of the call, under the first key that names one, else the id of
// the request.
func toolCallID(meta map[string]any, request json.RawMessage) string {
	for _, key := range []string{metaToolCallID, "claudecode/toolUseId", "callId"} {
		if id, ok := meta[key].(string); ok && id != "" {
			return clip(id)
		}
	}
	var text string
	if json.Unmarshal(request, &text) == nil {
		return clip(text)
	}
	return clip(string(request))
}

// clientName is "name version" of a client, as it introduced itself.
func clientName(info mcp.Implementation) string {
	return clip(strings.TrimSpace(info.Name + " " + info.Version))
}
