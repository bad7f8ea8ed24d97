// Package provenance records, per session, what was shown to a model, which scripts ran and what was refused.
//
// A session is an append-only sequence of events. Each event is one line of JSON whose hash covers the line
// and the hash of the previous event, so recomputing the chain detects a changed, removed or reordered event.
// The JSON artifacts of a session (skill-activations.json, policy-trace.json …) are views: pure functions of
// the events, which a verifier recomputes byte for byte.
//
// The chain shows that a record was changed, not by whom: an attacker who can rewrite the whole record can
// write a consistent one. A signature of the head of the chain by an external key closes that gap. This
// package redacts nothing: callers must not put file contents, outputs or secrets into an event.
//
// A [Writer] records sessions and a [Reader] reads them; other packages need not know where a [Store] keeps
// them. Package cfharness defines the rows and views.
//
//	err := store.Append(ctx, &provenance.Event{
//		Session: id, Kind: provenance.KindScriptRequested, Principal: "local",
//		Skill: "pdf", Path: "scripts/extract.py", Detail: "requested",
//	})
//	if err != nil {
//		return err // the script must not start
//	}
package provenance

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// An Event is one line in the record of a session. The store sets Seq, Time (if zero), Prev and Hash. An
// event never contains file contents, outputs or secrets. It must not be changed while it is being appended.
type Event struct {
	Seq       uint64    `json:"seq"`  // from 1, without gaps
	Time      time.Time `json:"time"` // UTC, milliseconds
	Kind      Kind      `json:"kind"`
	Session   string    `json:"session"`
	Parent    string    `json:"parent,omitempty"` // the session that this one continues or belongs to
	Principal string    `json:"principal"`
	Client    string    `json:"client,omitempty"` // name and version, as given by the client
	// Turn identifies the writer's turn, in a store with several writing processes (see Writer.Take).
	Turn string `json:"turn,omitempty"`
	// Call is equal in all events of one call, including the events of a question to the user that it led to,
	// of the answer, and of the call that came with the answer. It is unique within the session.
	Call string `json:"call,omitempty"`

	Skill    string          `json:"skill,omitempty"` // skill path
	Path     string          `json:"path,omitempty"`  // file of the skill
	Want     string          `json:"want,omitempty"`  // digest expected, on drift
	Got      string          `json:"got,omitempty"`   // digest found, on drift
	Detail   string          `json:"detail"`
	Row      json.RawMessage `json:"row,omitempty"`      // row in the view of this kind
	Decision json.RawMessage `json:"decision,omitempty"` // row in decisions of policy-trace.json
	// Invocation is a row in cfcInvocationContexts of policy-trace.json.
	Invocation json.RawMessage `json:"invocation,omitempty"`
	Files      []File          `json:"files,omitempty"` // files of the session that belong to the event
	Prev       string          `json:"prev"`            // hash of the previous event; 64 zeros for the first
	Hash       string          `json:"hash"`            // lower-case hex sha256 of the line up to ,"hash"
}

// ID returns "<session>:<seq>", the id of the event in denials.
func (e *Event) ID() string {
	return e.Session + ":" + strconv.FormatUint(e.Seq, 10)
}

// loadError is the prefix of the Detail of a skill.activated event whose skill was not loaded.
const loadError = "error "

// LoadError returns the Detail of a skill.activated event for a skill that was not loaded.
func LoadError(code string) string { return loadError + code }

// ErrorCode returns the error code of an attempt to load, read or run that failed, or "" for all other
// events.
func (e *Event) ErrorCode() string {
	switch e.Kind {
	case KindSkillActivated:
		code, _ := strings.CutPrefix(e.Detail, loadError)
		if code == e.Detail {
			return ""
		}
		return code
	case KindResourceRead, KindScriptExecuted:
		var row struct {
			Error struct {
				Code string `json:"code"`
			} `json:"error"`
		}
		if len(e.Row) > 0 && json.Unmarshal(e.Row, &row) == nil {
			return row.Error.Code
		}
	}
	return ""
}

// File identifies a file of a session by its content.
type File struct {
	Name   string        `json:"name"` // e.g. "skill-registry.json", "outputs/…"
	Size   int64         `json:"size"` // bytes
	Digest digest.Digest `json:"digest"`
}
