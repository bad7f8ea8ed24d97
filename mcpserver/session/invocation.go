package session

import (
	"encoding/json"
	"slices"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

// invocation returns the context of a command that was given to the sandbox: sizes and digests of what the
// record of the run holds, so it reveals no more than that. It is nil for attempts that did not get so far
// and for runs on the host.
func (s *Session) invocation(r *run, o *cfharness.RunOutput) json.RawMessage {
	if r.cmd == nil || r.cmd.Argv == nil || r.cmd.target == policy.TargetHost {
		return nil
	}
	if failed := o.Error; failed != nil && failed.Code != string(CodeCwdDenied) &&
		failed.Code != string(CodeSandboxUnavailable) {
		return nil
	}
	c := cfharness.InvocationContext{
		Type: cfharness.TypeInvocationContext, Version: 1, Sequence: int(s.next(&s.invocations)), RunID: s.id,
		CreatedAt: provenance.Stamp(r.at), ToolID: r.call.Method, ToolOutputID: r.output,
		Operation: cfharness.OperationCommand, Mode: r.mode.String(), CWD: o.CWD, PromptSlot: r.promptSlot(),
		RunManifest: s.invocationManifest(),
		Inputs: cfharness.InvocationInputs{
			Argv: cfharness.SummarizeSequence(o.Argv), Args: cfharness.SummarizeSequence(o.Args),
			Env: cfharness.SummarizeEnv(r.cmd.Env),
		},
		InputLabels: s.inputLabels(r),
	}
	if r.in.Stdin != nil {
		c.Inputs.Stdin = cfharness.SummarizeText(r.cmd.secrets.Bytes(r.in.Stdin))
	}
	return encode(c)
}

func (s *Session) invocationManifest() cfharness.InvocationManifest {
	m := s.cfg.Facts.Manifest
	if m == nil {
		return cfharness.InvocationManifest{}
	}
	return cfharness.InvocationManifest{Present: true, Path: provenance.RunManifestFile,
		Source: cfharness.RunManifestSource,
		WishID: m.WishID, DispatchClass: m.DispatchClass, Mode: m.Mode,
		PromptSlotPresent: new(m.PromptSlot != nil)}
}

// inputLabels returns the labels the caller gave, with the influence of the words behind the call on every
// input that the call determines.
func (s *Session) inputLabels(r *run) *cfharness.InputLabels {
	labels := &cfharness.InputLabels{Version: 1}
	has := func(input any) bool { return input != "cwd" || r.in.Cwd != "" }
	if given := r.call.InputLabels; given != nil {
		for _, entry := range given.Entries {
			if has(entry.Path[0]) {
				labels.Entries = append(labels.Entries, entry)
			}
		}
	}
	atom := cfharness.Influence(r.promptSlot(), s.cfg.Facts.Manifest)
	for _, input := range cfharness.LabelledInputs() {
		if atom == nil || !has(input) {
			continue
		}
		i := slices.IndexFunc(labels.Entries,
			func(e cfharness.InputLabel) bool { return len(e.Path) == 1 && e.Path[0] == input })
		if i < 0 {
			i = len(labels.Entries)
			labels.Entries = append(labels.Entries, cfharness.InputLabel{Path: provenance.List[any]{input}})
		}
		label := &labels.Entries[i].Label
		label.Confidentiality = append(slices.Clip(label.Confidentiality), atom)
	}
	if len(labels.Entries) == 0 {
		return nil
	}
	return labels
}
