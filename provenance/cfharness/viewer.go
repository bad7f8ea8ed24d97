package cfharness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

// sandboxSkill is the path of a script's skill in the sandbox. Callers see it for runs on the host too,
// instead of the directory on this machine.
const sandboxSkill = "/skill/"

// Viewer restricts what a caller sees of the files of a session.
type Viewer struct {
	Remote   bool                       // sandbox paths replace paths of this machine
	Released func(outputID string) bool // reports whether the output of a run is visible
	Shows    func(file string) bool     // reports whether an output file is visible
	Hides    func(skill string) bool    // reports whether registry and policy omit a skill; nil: none
}

// Project writes the content of a file as visible to the caller. Content without changes stays equal byte for
// byte. Changed lines of the event record no longer match their hash.
func (v *Viewer) Project(name string, r io.Reader, w io.Writer) error {
	key := ""
	for _, l := range rowLists {
		if l.view == name && l.key != invocationsKey {
			key = l.key
		}
	}
	registry, policy := name == provenance.RegistryFile, name == provenance.PolicySnapshotFile
	switch {
	case name == provenance.EventsFile:
		return v.projectEvents(r, w)
	case key == "" && !(registry && v.Remote) && !((registry || policy) && v.Hides != nil):
		_, err := io.Copy(w, r)
		return err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	switch {
	case key != "":
		data, err = v.projectView(name, key, data)
	case policy:
		data, err = v.projectPolicy(data)
	default:
		data, err = v.projectRegistry(data)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// projectView projects the rows of a view, which are the list with a key.
func (v *Viewer) projectView(name, key string, data []byte) ([]byte, error) {
	var view map[string]json.RawMessage
	var rows []json.RawMessage
	err := json.Unmarshal(data, &view)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	err = json.Unmarshal(view[key], &rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out bytes.Buffer
	for _, raw := range rows {
		row, err := v.Row(name, raw)
		if err != nil {
			return nil, err
		}
		// raw is a copy of the bytes in data, so the cut is at this row.
		before, after, _ := bytes.Cut(data, raw)
		out.Write(before)
		if row == nil {
			out.Write(raw)
		} else if err := json.Indent(&out, row, "    ", "  "); err != nil {
			return nil, err
		}
		data = after
	}
	out.Write(data)
	return out.Bytes(), nil
}

// projectEvents projects the rows and files in events, line by line.
func (v *Viewer) projectEvents(r io.Reader, w io.Writer) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			shown, failed := v.projectEvent(line)
			if failed == nil {
				_, failed = w.Write(shown)
			}
			if failed != nil {
				return failed
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// Event returns an event as visible to the caller. It has the hash of the recorded event.
//
// Errors: an error for a malformed row.
func (v *Viewer) Event(e *provenance.Event) (*provenance.Event, error) {
	line, err := provenance.EncodeLine(e)
	if err != nil {
		return nil, err
	}
	line, err = v.projectEvent(line)
	if err != nil {
		return nil, err
	}
	var seen provenance.Event
	if err := json.Unmarshal(line, &seen); err != nil {
		return nil, fmt.Errorf("%s: %w", provenance.EventsFile, err)
	}
	return &seen, nil
}

// projectEvent projects one line of the event record. It omits the names and digests of withheld outputs.
func (v *Viewer) projectEvent(line []byte) ([]byte, error) {
	l, err := readEventLine(line)
	if err != nil {
		return nil, err
	}
	if err := v.projectRows(l); err != nil {
		return nil, err
	}
	if l.Kind == provenance.KindOutputsRemoved {
		if err := v.projectRemoval(l); err != nil {
			return nil, err
		}
	}
	if err := v.projectFiles(l); err != nil {
		return nil, err
	}
	return l.line, nil
}

// eventLine is a line of the event record, with the values that may be replaced.
type eventLine struct {
	line []byte

	Kind     provenance.Kind `json:"kind"`
	Detail   json.RawMessage `json:"detail"`
	Row      json.RawMessage `json:"row"`
	Decision json.RawMessage `json:"decision"`
	Files    json.RawMessage `json:"files"`

	files []provenance.File // Files, decoded
}

func readEventLine(line []byte) (*eventLine, error) {
	l := &eventLine{line: line}
	if err := json.Unmarshal(line, l); err != nil {
		return nil, fmt.Errorf("%s: %w", provenance.EventsFile, err)
	}
	if len(l.Files) > 0 {
		if err := json.Unmarshal(l.Files, &l.files); err != nil {
			return nil, fmt.Errorf("%s: %w", provenance.EventsFile, err)
		}
	}
	return l, nil
}

// replace replaces the value after a key, such as "row":. The key with its quotes cannot occur earlier in the
// line: in a string the quotes would be escaped.
func (l *eventLine) replace(key string, was, now []byte) {
	l.line = bytes.Replace(l.line, append([]byte(key), was...), append([]byte(key), now...), 1)
}

// projectRows projects the rows of views in an event.
func (v *Viewer) projectRows(l *eventLine) error {
	view := l.Kind.Facts().View
	if view != "" && len(l.Row) > 0 {
		row, err := v.Row(view, l.Row)
		if err != nil {
			return err
		}
		if row != nil && l.Kind == provenance.KindScriptExecuted {
			detail, err := opaqueDetail(row)
			if err != nil {
				return err
			}
			if detail != nil {
				l.replace(`"detail":`, l.Detail, detail)
			}
		}
		if row != nil {
			l.replace(`"row":`, l.Row, row)
		}
	}
	if len(l.Decision) == 0 {
		return nil
	}
	decision, err := v.Row(provenance.PolicyTraceFile, l.Decision)
	if err == nil && decision != nil {
		l.replace(`"decision":`, l.Decision, decision)
	}
	return err
}

// projectRemoval omits the withheld outputs that an outputs.removed event deletes.
func (v *Viewer) projectRemoval(l *eventLine) error {
	var row provenance.OutputsRemoved
	if err := json.Unmarshal(l.Row, &row); err != nil {
		return fmt.Errorf("%s: %w", provenance.EventsFile, err)
	}
	row.Files = slices.DeleteFunc(row.Files, func(f provenance.File) bool { return !v.Shows(f.Name) })
	shown, err := provenance.Encode(row)
	if err != nil {
		return err
	}
	l.replace(`"row":`, l.Row, shown)
	return nil
}

// projectFiles omits the withheld outputs among the files of an event.
func (v *Viewer) projectFiles(l *eventLine) error {
	shown := slices.DeleteFunc(slices.Clone(l.files), func(f provenance.File) bool {
		return strings.HasPrefix(f.Name, provenance.OutputsDir+"/") && !v.Shows(f.Name)
	})
	switch {
	case len(shown) == len(l.files):
		return nil
	// An empty list would reveal that there were files.
	case len(shown) == 0:
		l.line = bytes.Replace(l.line, append([]byte(`,"files":`), l.Files...), nil, 1)
		return nil
	}
	list, err := provenance.Encode(shown)
	if err != nil {
		return err
	}
	l.replace(`"files":`, l.Files, list)
	return nil
}

// opaqueDetail returns the detail for the event of an opaque run, from the projected row; nil for other runs.
func opaqueDetail(row json.RawMessage) ([]byte, error) {
	var x ScriptExecution
	err := json.Unmarshal(row, &x)
	if err != nil || x.Skillsd == nil || !x.Skillsd.Opaque {
		return nil, err
	}
	return provenance.Encode(x.Skillsd.Outcome)
}

// Row returns the row of a view as visible to the caller, or nil if it is unchanged.
func (v *Viewer) Row(view string, raw json.RawMessage) (json.RawMessage, error) {
	switch view {
	case provenance.PolicyTraceFile:
		return projectRow(view, raw, v.projectDecision)
	case provenance.ActivationsFile:
		return projectRow(view, raw, v.projectActivation)
	case provenance.ResourceReadsFile:
		return projectRow(view, raw, v.projectRead)
	}
	return projectRow(view, raw, v.projectExecution)
}

// projectRow returns a row as changed by project, or nil if project reports that it changed nothing.
func projectRow[T any](
	view string, raw json.RawMessage, project func(row *T) (changed bool),
) (json.RawMessage, error) {
	var row T
	if err := json.Unmarshal(raw, &row); err != nil {
		return nil, fmt.Errorf("row of %s: %w", view, err)
	}
	if !project(&row) {
		return nil, nil
	}
	return provenance.Encode(row)
}

func (v *Viewer) projectDecision(d *PolicyDecision) (changed bool) {
	if d.Skillsd == nil || d.Skillsd.Operator == "" {
		return false
	}
	d.Skillsd.Operator = ""
	return true
}

// projectActivation replaces host paths, which every activation has, for a remote caller.
func (v *Viewer) projectActivation(a *Activation) (changed bool) {
	if !v.Remote {
		return false
	}
	a.SkillPath, a.SkillDir = a.SandboxSkillPath, a.SandboxSkillDir
	if a.Skillsd != nil {
		a.Skillsd.Origin = a.Skillsd.Origin.Public()
	}
	return true
}

func (v *Viewer) projectRead(r *ResourceRead) (changed bool) {
	if !v.Remote || r.ResourcePath == "" {
		return false
	}
	r.ResourcePath = r.SandboxResourcePath
	return true
}

func (v *Viewer) projectExecution(x *ScriptExecution) (changed bool) {
	if v.Remote && x.ResourcePath != "" {
		changed, x.ResourcePath = true, x.SandboxResourcePath
	}
	// A run on the host has paths of this machine; no caller gets them.
	if x.ExecutionTarget == "host" {
		at := hostScript(x)
		if shown := sandboxSkill + x.Path; at > 0 && x.Argv[at] != shown {
			changed, x.Argv[at] = true, shown
		}
		if x.Skillsd != nil && x.Skillsd.HostCWD != "" {
			changed, x.Skillsd.HostCWD = true, ""
		}
	}
	if x.Skillsd != nil && !v.Released(x.OutputID) {
		changed = true
		x.Skillsd, x.ExitCode = Sealed(x.Skillsd, x.ExitCode)
	}
	if v.Remote && x.Skillsd != nil && (x.Skillsd.Interpreter != nil || x.Skillsd.Origin != nil) {
		changed, x.Skillsd = true, Pathless(x.Skillsd)
	}
	return changed
}

// hostScript returns the index of the script in the argv of a run on the host, or 0 if it is not in it.
func hostScript(x *ScriptExecution) int {
	for i, arg := range x.Argv {
		switch {
		case arg == "-" || arg == "--":
			// The script is read from stdin; the arguments of the caller follow.
			return 0
		case i > 0 && strings.HasPrefix(arg, "/") && strings.HasSuffix(arg, "/"+x.Path):
			return i
		}
	}
	return 0
}

// Sealed returns x, and the exit code of its run, without facts that would reveal withheld output: a digest
// of a short text is as good as the text, and so is the name of a host that a script chose. For an opaque run
// this includes even an exit code or a duration, since a script that is called repeatedly can encode the next
// part in each.
func Sealed(x *RunExtension, code *int) (*RunExtension, *int) {
	copied := *x
	if x.Opaque {
		copied.Outcome, copied.Signal, copied.DurationMS = x.opaqueOutcome(code), "", 0
		copied.Stdout = StreamSummary{Withheld: x.Stdout.Withheld}
		copied.Stderr = StreamSummary{Withheld: x.Stderr.Withheld}
	}
	if x.ExitWithheld || copied.Outcome == OutcomeFailed {
		copied.Signal, code = "", nil
	}
	for _, stream := range []*StreamSummary{&copied.Stdout, &copied.Stderr} {
		stream.Digest, stream.Salt, stream.URI = "", "", ""
		if stream.Withheld == PolicyDenied {
			stream.Bytes = 0
		}
	}
	copied.Out, copied.Missing = nil, nil
	copied.OutSkips, copied.Skipped = 0, nil
	copied.Connections, copied.Unlisted = nil, 0
	copied.Writes, copied.WritesUnlisted, copied.Kept = nil, 0, nil
	return &copied, code
}

// opaqueOutcome returns the outcome that the caller of an opaque run sees.
func (x *RunExtension) opaqueOutcome(code *int) Outcome {
	switch {
	// The caller itself has canceled it.
	case x.Outcome == OutcomeCanceled:
		return OutcomeCanceled
	case x.ExitWithheld, x.Outcome == OutcomeExited && code != nil && *code == 0:
		return OutcomeExited
	}
	return OutcomeFailed
}

// Pathless returns x without the paths of this machine: the interpreter, the directory of a script on the
// host, and the source of the skill. It also leaves out the digest of the list of changed files, which only
// the user can open.
func Pathless(x *RunExtension) *RunExtension {
	copied := *x
	if x.Kept != nil {
		copied.Kept = &Kept{Entries: x.Kept.Entries, Problem: x.Kept.Problem}
	}
	copied.HostCWD, copied.Origin = "", x.Origin.Public()
	if x.Interpreter != nil {
		copied.Interpreter = &Interpreter{Version: x.Interpreter.Version, Digest: x.Interpreter.Digest}
	}
	return &copied
}

// Public returns the origin for remote clients, or nil if it contains a path of this machine.
func (o *SkillOrigin) Public() *SkillOrigin {
	if o == nil || o.Kind != "git" && o.Kind != "url" && o.Kind != "index" {
		return nil
	}
	return o
}

// projectPolicy removes everything that names a hidden skill, or a file in its directory.
func (v *Viewer) projectPolicy(data []byte) ([]byte, error) {
	var p PolicySnapshot
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", provenance.PolicySnapshotFile, err)
	}
	hidden := func(skill, file string) bool {
		at := path.Join(skill, file)
		// A file belongs to the hidden skill in any directory above it.
		for at != "." && at != "/" && !v.Hides(at) {
			at = path.Dir(at)
		}
		return at != "." && at != "/"
	}
	script := func(s AllowedScript) bool { return hidden(s.Skill, s.Path) }
	p.SkillScripts.AllowedScripts = slices.DeleteFunc(p.SkillScripts.AllowedScripts, script)
	if x := p.Skillsd; x != nil {
		x.LoadedSkills = slices.DeleteFunc(x.LoadedSkills,
			func(s LoadedSkill) bool { return hidden(s.Path, "") })
		x.Allowlist = slices.DeleteFunc(x.Allowlist,
			func(e AllowlistEntry) bool { return hidden(e.Skill, e.Path) })
		x.TrustDiagnostics = slices.DeleteFunc(x.TrustDiagnostics,
			func(d TrustDiagnostic) bool { return hidden(d.Skill, d.Path) })
	}
	for _, profile := range p.Subagents.ProfileConfigs {
		for _, names := range []*List[string]{profile.SkillNames, profile.AllowedSkills} {
			if names != nil {
				*names = slices.DeleteFunc(*names, func(skill string) bool { return hidden(skill, "") })
			}
		}
		if profile.AllowedScripts != nil {
			*profile.AllowedScripts = slices.DeleteFunc(*profile.AllowedScripts, script)
		}
	}
	return provenance.EncodePretty(p)
}

// projectRegistry removes hidden skills, and for a remote caller replaces host paths by sandbox paths.
func (v *Viewer) projectRegistry(data []byte) ([]byte, error) {
	var registry SkillRegistry
	if err := json.Unmarshal(data, &registry); err != nil {
		return nil, fmt.Errorf("%s: %w", provenance.RegistryFile, err)
	}
	if v.Hides != nil {
		registry.leaveOut(v.Hides)
	}
	if !v.Remote {
		return provenance.EncodePretty(registry)
	}
	registry.SkillsRoot = registry.SandboxSkillsRoot
	if x := registry.Skillsd; x != nil {
		for i := range x.Roots {
			x.Roots[i].Path = x.Roots[i].SandboxPath
		}
		for i := range x.Shadowed {
			x.Shadowed[i].SkillDir = registry.SandboxSkillsRoot + "/" + x.Shadowed[i].Path
		}
	}
	for i := range registry.Skills {
		sk := &registry.Skills[i]
		sk.SkillPath, sk.SkillDir = sk.SandboxPath, sk.SandboxSkillDir
		if sk.Skillsd != nil {
			sk.Skillsd.Origin = sk.Skillsd.Origin.Public()
		}
		for j := range sk.Resources {
			sk.Resources[j].ResourcePath = sk.Resources[j].SandboxResourcePath
		}
	}
	return provenance.EncodePretty(registry)
}

// ObservationPolicy is how much of an output a caller may observe.
type ObservationPolicy string

// The policies, from the least to the most restrictive.
const (
	PolicyObserved ObservationPolicy = "observed" // the output itself
	PolicyOpaque   ObservationPolicy = "opaque"   // a handle, which the caller can pass on
	PolicyDenied   ObservationPolicy = "denied"   // only that there is an output
)

// SandboxResult is the CfcSandboxResult of the reference: how much of the output of a run a caller may
// observe. A runtime that labels its output returns one, and an answer contains one with what was released.
type SandboxResult struct {
	Version     int                 `json:"version"` // 1
	Stdout      StreamObservation   `json:"stdout"`
	Stderr      StreamObservation   `json:"stderr"`
	ExitCode    ExitCodeObservation `json:"exitCode"`
	Diagnostics []json.RawMessage   `json:"diagnostics,omitempty"` // of the runtime
}

// StreamObservation is how much of a stream a caller may observe. Segments is set only if it is observed,
// ByteLength only if it is opaque, Reason only if it is denied.
type StreamObservation struct {
	Channel    string              `json:"channel"` // stdout or stderr
	Policy     ObservationPolicy   `json:"policy"`
	Label      json.RawMessage     `json:"label"` // not interpreted
	Segments   List[StreamSegment] `json:"segments,omitzero"`
	ByteLength *int64              `json:"byteLength,omitempty"`
	Truncated  bool                `json:"truncated,omitempty"`
	Reason     string              `json:"reason,omitempty"`
}

// StreamSegment is a part of an observed stream. Offset and ByteLength are in bytes.
type StreamSegment struct {
	Text       string          `json:"text"`
	Label      json.RawMessage `json:"label"`
	Offset     int64           `json:"offset"`
	ByteLength int64           `json:"byteLength"`
}

// ExitCodeObservation is how much of an exit code a caller may observe. Value is set only if it is observed,
// Reason only if it is denied.
type ExitCodeObservation struct {
	Policy ObservationPolicy `json:"policy"`
	Label  json.RawMessage   `json:"label"`
	Value  *int              `json:"value,omitempty"`
	Reason string            `json:"reason,omitempty"`
}

// ReadSandboxResult parses the result of a runtime. A nil result observes everything. An invalid one denies
// everything: a runtime that labels its output must not be treated as one that does not.
func ReadSandboxResult(raw []byte) *SandboxResult {
	m := &SandboxResult{}
	switch {
	case raw == nil:
		m.decide(PolicyObserved, "")
	case json.Unmarshal(raw, m) != nil || !m.known():
		*m = SandboxResult{}
		m.decide(PolicyDenied, "the runtime's mediation result cannot be read")
	}
	m.Version, m.Stdout.Channel, m.Stderr.Channel = 1, "stdout", "stderr"
	for _, label := range []*json.RawMessage{&m.Stdout.Label, &m.Stderr.Label, &m.ExitCode.Label} {
		if len(*label) == 0 {
			*label = json.RawMessage("{}")
		}
	}
	return m
}

// decide sets one policy for all output.
func (m *SandboxResult) decide(policy ObservationPolicy, reason string) {
	m.Stdout.Policy, m.Stderr.Policy, m.ExitCode.Policy = policy, policy, policy
	m.Stdout.Reason, m.Stderr.Reason, m.ExitCode.Reason = reason, reason, reason
}

// known reports whether the version and all policies are known here.
func (m *SandboxResult) known() bool {
	for _, p := range []ObservationPolicy{m.Stdout.Policy, m.Stderr.Policy, m.ExitCode.Policy} {
		if p != PolicyObserved && p != PolicyOpaque && p != PolicyDenied {
			return false
		}
	}
	return m.Version == 1
}

// Observation is the value of a stream in an output object: the text, or the reason why it was withheld. The
// zero value is an absent key.
type Observation struct {
	Text   *string
	Denied *ObservationDenied
}

// MarshalJSON implements json.Marshaler.
func (o Observation) MarshalJSON() ([]byte, error) {
	if o.Denied != nil {
		return provenance.Encode(o.Denied)
	}
	return provenance.Encode(o.Text)
}
