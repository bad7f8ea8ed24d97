package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
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

// metaOutput is the key of the reference's output object in the _meta of a result.
const metaOutput = "skillsd/result"

const (
	// metaRecords is the key of the records of a call. A request asks for them with the same key and the
	// value true, because some clients pass a whole result to the model.
	metaRecords = "skillsd/records"
	// metaRunID is the key of the id that the caller requests for its session.
	metaRunID = "skillsd/run-id"
	// metaManifest is the key of the run manifest for a session that the call starts.
	metaManifest = "skillsd/run-manifest"
	// metaOutputID is the key of the id that the caller requests for the output of a call.
	metaOutputID = "skillsd/output-id"
	// metaSource is the key of the reason why a skill was loaded.
	metaSource = "skillsd/activation-source"
	// metaInputLabels is the key of the labels of a run's inputs.
	metaInputLabels = "skillsd/input-labels"
)

// localPrincipal is the user of the process, the principal on stdio, with trusted evidence.
var localPrincipal = policy.Principal{Name: "local", Evidence: true}

// LocalPrincipal returns the principal of stdio, and of commands of the same user that do the work of a tool.
func LocalPrincipal() policy.Principal { return localPrincipal }

type principalKey struct{}

func withPrincipal(ctx context.Context, p policy.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// principalOf returns the principal of a request, and whether it came over HTTP.
func principalOf(ctx context.Context) (p policy.Principal, remote bool) {
	p, remote = ctx.Value(principalKey{}).(policy.Principal)
	if remote {
		return p, true
	}
	return localPrincipal, false
}

// refresh applies a configuration that changed since the previous request.
func (s *Server) refresh(ctx context.Context) {
	if s.cfg.Refresh != nil && s.isReady() {
		s.cfg.Refresh(ctx)
	}
}

// isReady reports whether the first scan is published.
func (s *Server) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// scanned waits for the first scan until ctx ends.
func (s *Server) scanned(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitScan waits for the first scan, but no longer than clients do, and reports whether it is done.
func (s *Server) awaitScan(ctx context.Context) bool {
	waits := s.waits
	if clientOf(ctx).keeps {
		waits = waits.Add(keepsPatience)
	}
	ctx, cancel := context.WithDeadline(ctx, waits)
	defer cancel()
	if s.isReady() || s.scanned(ctx) == nil {
		return true
	}
	// The answer is incomplete, so its list changes when the scan is done.
	s.early.Store(true)
	return false
}

// open waits for the first scan and returns the session of a call with the call's properties. A handle in the
// arguments takes precedence over one in _meta. If another server has the session, the request is forwarded.
func (s *Server) open(
	ctx context.Context, method string, meta map[string]any, handle string,
) (*session.Session, session.Call, error) {
	// Another message of the principal may be decoded now, while this call waits.
	wire.Decoded(ctx)
	// A skill that is missing before the scan is done may still be found.
	if err := s.scanned(ctx); err != nil {
		return nil, session.Call{}, err
	}
	call, err := s.callOf(ctx, method, meta)
	if err != nil {
		return nil, call, err
	}
	call.Handle = cmp.Or(handle, call.Handle)
	ses, err := s.cfg.Sessions.Open(ctx, call)
	if err != nil {
		passOn(ctx, err)
	}
	return ses, call, err
}

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
	if call.Named != "" || clients[client.Info.Name].names {
		call.Conversation = conversationOf(meta)
	}
	call.Records, _ = ctx.Value(recorderKey{}).(*session.Recorder)
	err := checkNames(meta)
	if err != nil {
		return call, err
	}
	call.Profile, err = s.profileOf(meta)
	if err != nil {
		return call, err
	}
	s.setSession(ctx, &call, client)
	if !remote {
		call.Workspace = s.workspaceOf(ctx, method, meta)
	}
	// A principal with control of its own prompt slot or mode could approve its own calls.
	if principal.Evidence {
		return call, evidence(ctx, &call, meta)
	}
	s.warnOfEvidence(ctx, principal, meta)
	return call, nil
}

// setSession sets by what the session of a call is found, apart from the names in its _meta.
func (s *Server) setSession(ctx context.Context, call *session.Call, client wire.Client) {
	if !call.Remote {
		call.ClientSession = cmp.Or(call.ClientSession, s.cfg.ClientSession)
		// The client's own session is the session of the process, which calls find without a name.
		if call.Named == s.cfg.ClientSession {
			call.Named, call.ClientSession = "", cmp.Or(call.Named, call.ClientSession)
		}
		return
	}
	call.Forwarded = wire.IsForwarded(ctx)
	// Over HTTP many conversations share a principal, so only a load opens a session.
	call.Opens = call.Method == ToolLoad || call.Method == methodGetPrompt
	switch {
	case !client.Modern:
		call.ProtocolSession = client.SessionID
	case s.guesses.Load() && wire.Alone(ctx):
		call.Alone = cmp.Or(call.Client, "unknown")
	}
}

// checkNames refuses names of sessions that are not texts: with its name dropped, a child would act in the
// session of the process, with all of its rights.
func checkNames(meta map[string]any) error {
	for _, key := range []string{metaSession, metaParent} {
		if value, ok := meta[key]; ok && firstText(value) == "" {
			return invalidArguments(fmt.Sprintf("_meta[%q] is not a name", key),
				"send a non-empty string, or leave it out")
		}
	}
	return nil
}

// warnOfEvidence logs the evidence of a principal that may not give any.
func (s *Server) warnOfEvidence(ctx context.Context, principal policy.Principal, meta map[string]any) {
	for _, row := range RequestMeta() {
		if _, ok := meta[row.Key]; ok && row.Evidence {
			s.cfg.Logger.WarnContext(ctx, "ignored evidence of a principal that is not trusted with it",
				slog.String("principal", principal.Name), slog.String("key", row.Key))
		}
	}
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
		if err := setManifest(call, manifest); err != nil {
			return err
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

// setManifest sets the run manifest of a call, and from it the prompt slot, unless the call has its own, and
// the enforcement mode.
func setManifest(call *session.Call, raw []byte) (err error) {
	call.Manifest, err = cfharness.ParseRunManifest(raw)
	if err != nil {
		return invalidArguments(err.Error(), "send a cf-harness.loom-run-manifest in _meta, or none")
	}
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
	return nil
}

// metaSandboxState is the key of Codex's description of its own sandbox, and the experimental capability that
// requests it.
const metaSandboxState = "codex/sandbox-state-meta"

// workspaceOf returns the working directory of the client of a stdio process: from the call, else from the
// environment, else its first root, else the directory in which it started the process. Whether scripts may
// see it is not decided here.
func (s *Server) workspaceOf(ctx context.Context, method string, meta map[string]any) session.ClientDir {
	state, ok := meta[metaSandboxState]
	switch {
	case ok:
	case s.cfg.ClientDir != "" || !s.cfg.AskWorkspace:
		return session.ClientDir{Path: s.cfg.ClientDir}
	default:
		return session.ClientDir{Path: cmp.Or(s.roots.first(ctx, method == ToolRun), s.cfg.StartDir)}
	}
	raw, err := json.Marshal(state)
	if err != nil {
		return session.ClientDir{}
	}
	return sandboxState(raw)
}

// rootsPatience is how long a call waits for the roots of a client that declares them.
const rootsPatience = 2 * time.Second

// clientRoots caches the first root of the client of a stdio process.
type clientRoots struct {
	mu    sync.Mutex
	known bool
	dir   string // empty without roots
}

// first returns the client's first root as a path; empty without one. A client is asked once, and again if
// anew is set, since it may have changed directory.
func (r *clientRoots) first(ctx context.Context, anew bool) string {
	if wire.ClientOf(ctx).Capabilities.Roots == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known && (!anew || r.dir == "") {
		return r.dir
	}
	ctx, cancel := context.WithTimeout(ctx, rootsPatience)
	defer cancel()
	var list mcp.ListRootsResult
	if err := wire.Ask(ctx, mcp.MethodListRoots, nil, &list); err != nil {
		// A client that does not answer is not asked again.
		r.known = true
		return r.dir
	}
	r.known, r.dir = true, ""
	for _, root := range list.Roots {
		if dir := fileOf(root.URI); filepath.IsAbs(dir) {
			r.dir = dir
			break
		}
	}
	return r.dir
}

// fileOf returns the path of a file URI of this machine, or the unchanged text if it is not one.
func fileOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || !strings.EqualFold(u.Scheme, "file") || u.Host != "" && u.Host != "localhost" ||
		u.Path == "" {
		return text
	}
	path := filepath.FromSlash(u.Path)
	// On Windows, the path in file:///C:/dir starts with a slash before the volume.
	if volume := path[1:]; filepath.VolumeName(volume) != "" {
		return volume
	}
	return path
}

// sandboxState returns the working directory in Codex's description of its sandbox, and whether the sandbox
// allows writing there. A description that cannot be parsed allows nothing.
func sandboxState(raw []byte) session.ClientDir {
	var state struct {
		Dir    string `json:"sandboxCwd"`
		Legacy struct {
			Type string `json:"type"`
		} `json:"sandboxPolicy"`
		Profile *struct {
			Type  string `json:"type"`
			Files struct {
				Type    string `json:"type"`
				Entries []struct {
					Path struct {
						Type string `json:"type"`
						Path string `json:"path"`
					} `json:"path"`
					Access string `json:"access"`
				} `json:"entries"`
			} `json:"file_system"`
		} `json:"permissionProfile"`
	}
	if !json.Valid(raw) {
		return session.ClientDir{}
	}
	// Another program may have approved the call by its own reading of this object, so it must be
	// unambiguous.
	err := wire.Unambiguous(raw, "sandboxCwd", "sandboxPolicy", "permissionProfile", "file_system", "entries",
		"path", "access", "type")
	if err != nil || json.Unmarshal(raw, &state) != nil {
		return session.ClientDir{}
	}
	dir := session.ClientDir{Path: fileOf(state.Dir), ReadOnly: true}
	if profile := state.Profile; profile != nil {
		longest := 0
		for _, entry := range profile.Files.Entries {
			// The entry closest to the directory decides.
			n := len(entry.Path.Path)
			rel, err := filepath.Rel(entry.Path.Path, dir.Path)
			within := err == nil && filepath.IsLocal(rel)
			if entry.Path.Type == "path" && n > longest && within {
				longest, dir.ReadOnly = n, entry.Access != "write"
			}
		}
		if profile.Type == "disabled" || profile.Files.Type == "unrestricted" {
			dir.ReadOnly = false
		}
		return dir
	}
	dir.ReadOnly = state.Legacy.Type != "workspace-write" && state.Legacy.Type != "danger-full-access"
	return dir
}

// passOn forwards the request if err names another server for its session.
func passOn(ctx context.Context, err error) {
	if at, ok := errors.AsType[*elsewhere.MovedError](err); ok {
		wire.Forward(ctx, at.Address)
	}
}

type recorderKey struct{}

// recording returns ctx with a recorder if a request asks for its records or for a run id, else nil. A
// request that asks only for a run id, and does not get it, gets no more than both ids.
func recording(ctx context.Context, meta map[string]any) (context.Context, *session.Recorder) {
	asked, _ := meta[metaRecords].(bool)
	if !asked && firstText(meta[metaRunID]) == "" {
		return ctx, nil
	}
	recorder := &session.Recorder{Brief: !asked}
	return context.WithValue(ctx, recorderKey{}, recorder), recorder
}

// records returns the records of a call; nil if they cannot be sent.
func (s *Server) records(ctx context.Context, recorder *session.Recorder) *cfharness.CallRecords {
	_, remote := principalOf(ctx)
	records, err := recorder.Records(remote)
	if err != nil {
		s.cfg.Logger.ErrorContext(ctx, "records of a call not sent", tint.Err(err))
		return nil
	}
	return records
}
