package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance/cfharness"
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
	metaHostPaths  = "skillsd/host-paths"
)

// metaAllowedTools is the key, in the _meta of the result of a load, of the skill's allowed-tools, for
// hosts that enforce them.
const metaAllowedTools = "skillsd/allowed-tools"

// localPrincipal is the user of the process, the principal on stdio, with trusted evidence.
var localPrincipal = policy.Principal{Name: "local", Evidence: true}

// LocalPrincipal returns the principal of stdio, and of commands of the same user that do the work of a tool.
func LocalPrincipal() policy.Principal { return localPrincipal }

// callOf collects the properties of a request besides its arguments.
func (s *Server) callOf(ctx context.Context, method string, meta map[string]any) (session.Call, error) {
	client := wire.ClientOf(ctx)
	principal, remote := principalOf(ctx)
	id := string(wire.RequestID(ctx))
	if strings.HasPrefix(id, `"`) { // not a number
		_ = json.Unmarshal([]byte(id), &id)
	}
	codex, _ := meta["x-codex-turn-metadata"].(map[string]any)
	call := session.Call{
		Method:    method,
		Principal: principal,
		Client:    policy.Clip(strings.TrimSpace(client.Info.Name + " " + client.Info.Version)),
		Protocol:  client.Version,
		ToolCallID: policy.Clip(firstText(
			meta[metaToolCallID], meta["claudecode/toolUseId"], meta["callId"], id)),
		Remote:        remote,
		Named:         firstText(meta[metaSession]),
		ClientSession: firstText(meta["threadId"], meta["sessionId"]),
		Turn:          policy.Clip(firstText(meta["turn_id"], meta["turnId"], codex["turn_id"])),
		Handle:        firstText(meta[metaActivation]),
		Parent:        firstText(meta[metaParent]),
		Room:          room,
		Borrow:        wire.Borrow,
	}
	call.HostPaths = !remote && meta[metaHostPaths] == true
	// A client that was not offered force could not get the text again.
	if call.Named != "" || clientOf(ctx).names {
		call.Conversation = conversationOf(meta)
	}
	call.Forwarded = wire.IsForwarded(ctx)
	call.Records, _ = ctx.Value(recorderKey{}).(*session.Recorder)
	for _, key := range []string{metaSession, metaParent} {
		// With its name dropped, a child would act in the session of the process, with all of its rights.
		if value, ok := meta[key]; ok && firstText(value) == "" {
			return call, invalidArguments(fmt.Sprintf("_meta[%q] is not a name", key),
				"send a non-empty string, or leave it out")
		}
	}
	var err error
	call.Profile, err = s.profileOf(meta)
	if err != nil {
		return call, err
	}
	if remote {
		// Over HTTP many conversations share a principal, so only a load opens a session.
		call.Opens = method == ToolLoad || method == methodGetPrompt
		switch {
		case !client.Modern:
			call.ProtocolSession = client.SessionID
		case s.guesses.Load() && wire.Alone(ctx):
			call.Alone = cmp.Or(call.Client, "unknown")
		}
	} else {
		call.ClientSession = cmp.Or(call.ClientSession, s.cfg.ClientSession)
		// The client's own session is the session of the process, which calls find without a name.
		if call.Named == s.cfg.ClientSession {
			call.Named, call.ClientSession = "", cmp.Or(call.Named, call.ClientSession)
		}
		call.Workspace = s.workspaceOf(ctx, method, meta)
	}
	// A principal with control of its own prompt slot or mode could approve its own calls.
	if principal.Evidence {
		return call, evidence(ctx, &call, meta)
	}
	for _, row := range RequestMeta() {
		if _, ok := meta[row.Key]; ok && row.Evidence {
			s.cfg.Logger.WarnContext(ctx, "ignored evidence of a principal that is not trusted with it",
				slog.String("principal", principal.Name), slog.String("key", row.Key))
		}
	}
	return call, nil
}

// conversationOf returns the name of the conversation in the _meta of a request, or "".
func conversationOf(meta map[string]any) string {
	return firstText(meta[metaSession], meta["threadId"], meta["sessionId"])
}

// firstText returns the first value that is a non-empty string, or "".
func firstText(values ...any) string {
	for _, value := range values {
		if text, ok := value.(string); ok && text != "" {
			return text
		}
	}
	return ""
}

// evidence reads the fields of a call that only trusted principals may set: the prompt slot, the enforcement
// mode, the lease of a browser, the id of a new session, and the labels of its inputs.
func evidence(ctx context.Context, call *session.Call, meta map[string]any) error {
	raw := func(key string) []byte {
		value, ok := meta[key]
		if !ok {
			return nil
		}
		// Records keep the client's bytes, which the library has decoded.
		if written := wire.Meta(ctx, key); written != nil {
			return written
		}
		text, _ := json.Marshal(value)
		return text
	}
	var err error
	call.RunID, call.OutputID = firstText(meta[metaRunID]), firstText(meta[metaOutputID])
	if source, ok := meta[metaSource]; ok {
		call.Source, err = cfharness.ParseSource(firstText(source))
		if err != nil {
			return invalidArguments(fmt.Sprintf("_meta[%q] is not a source of an activation", metaSource),
				"use cli-preload, model-tool, user-explicit or subagent-inherit")
		}
	}
	if slot := raw(metaPromptSlot); slot != nil {
		call.Slot, err = policy.ParsePromptSlot(slot)
		if err != nil {
			const remedy = "send a PromptSlotBound object in _meta, or none"
			return &session.Error{
				Code: fault.CodePromptSlotInvalid, Message: err.Error(), Remedy: remedy, Err: err,
			}
		}
	}
	if manifest := raw(metaManifest); manifest != nil {
		call.Manifest, err = cfharness.ParseRunManifest(manifest)
		if err != nil {
			return invalidArguments(err.Error(), "send a cf-harness.loom-run-manifest in _meta, or none")
		}
		// The prompt slot of the call takes precedence.
		if slot := call.Manifest.PromptSlot; slot != nil && call.Slot == nil {
			call.Slot, err = policy.ParsePromptSlot(slot)
			if err != nil {
				return invalidArguments("run manifest: "+err.Error(),
					"send a PromptSlotBound object as its promptSlot, or none")
			}
		}
		if mode := call.Manifest.Mode; mode != "" {
			call.Mode, err = policy.ParseMode(mode)
			if err != nil {
				return invalidArguments("run manifest: "+err.Error(),
					"use disabled, observe, enforce-explicit or enforce-strict")
			}
		}
	}
	if labels := raw(metaInputLabels); labels != nil {
		call.InputLabels, err = cfharness.ParseInputLabels(labels)
		if err != nil {
			return invalidArguments(err.Error(),
				"send {version: 1, entries: [{path, label}]} in _meta, or none")
		}
	}
	if lease := raw(metaLease); lease != nil {
		call.Lease, err = policy.ParseLease(lease)
		if err != nil {
			return invalidArguments(err.Error(), "send {leaseId, cdpUrl, expiresAt} in _meta, or none")
		}
	}
	if mode, ok := meta[metaMode]; ok {
		call.Mode, err = policy.ParseMode(firstText(mode))
		if err != nil {
			return invalidArguments(fmt.Sprintf("_meta[%q] is not an enforcement mode", metaMode),
				"use disabled, observe, enforce-explicit or enforce-strict")
		}
	}
	return nil
}

// profileOf returns the profile that a request asks for. An unknown profile is refused.
func (s *Server) profileOf(meta map[string]any) (string, error) {
	value, ok := meta[metaProfile]
	if !ok {
		return "", nil
	}
	name := firstText(value)
	// The client relies on the profile to restrict the call.
	if !s.cfg.Sessions.Policy().HasProfile(name) {
		return "", invalidArguments(fmt.Sprintf("_meta[%q] is not a profile of this server", metaProfile),
			"use a profile that the operator configured, or none")
	}
	return name, nil
}
