// Package provenance records, per session, what was shown to a model, what ran and what was
// refused.
//
// A session is an append-only sequence of events. Each event is one line of JSON whose hash covers
// its own bytes and the hash of the event before it, so a changed, removed or reordered event is
// found by recomputing the chain from the bytes alone. The JSON artifacts of a session
// (skill-activations.json, policy-trace.json …) are views: pure functions of the events, which a
// verifier recomputes byte for byte.
//
// The chain shows that a record was changed, not by whom: whoever can rewrite the whole record can
// write a consistent one. An external signature over the head of the chain closes that gap.
// Nothing here redacts: callers put neither file contents nor outputs nor secrets in an event.
//
// A [Writer] records sessions and a [Reader] reads them; no other package needs to know where a [Store]
// keeps them. Package cfharness has the shapes of the rows and views.
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

// An Event is one line of a session's record. The store sets Seq, Time (if zero), Prev and Hash.
// An event never contains file contents, outputs or secrets. An Event must not be changed while
// it is being appended.
type Event struct {
	Seq       uint64    `json:"seq"`  // from 1, without gaps
	Time      time.Time `json:"time"` // UTC, milliseconds
	Kind      Kind      `json:"kind"`
	Session   string    `json:"session"`
	Parent    string    `json:"parent,omitempty"` // the session this one continues or belongs to
	Principal string    `json:"principal"`
	Client    string    `json:"client,omitempty"` // name and version the client gave
	// Turn names the turn of the writer, in a store that several processes write to (see Writer.Take).
	Turn string `json:"turn,omitempty"`
	// Call is the same in all events of one call: also in the events of the question to the user that it
	// ended with, of the answer, and of the call that came with the answer. It is unique in its session.
	Call string `json:"call,omitempty"`

	Skill    string          `json:"skill,omitempty"` // skill path
	Path     string          `json:"path,omitempty"`  // file of the skill
	Want     string          `json:"want,omitempty"`  // digest expected, on drift
	Got      string          `json:"got,omitempty"`   // digest found, on drift
	Detail   string          `json:"detail"`
	Row      json.RawMessage `json:"row,omitempty"`      // the row of the view this event makes
	Decision json.RawMessage `json:"decision,omitempty"` // the policy-trace.json row decided with it
	// Invocation is the row of cfcInvocationContexts in policy-trace.json that was made with it.
	Invocation json.RawMessage `json:"invocation,omitempty"`
	Files      []File          `json:"files,omitempty"` // files of the session that belong to it
	Prev       string          `json:"prev"`            // hash of the event before, 64 zeros at first
	Hash       string          `json:"hash"`            // lower-case hex sha256 of the line up to ,"hash"
}

// ID returns "<session>:<seq>", the name of a recorded event in denials.
func (e *Event) ID() string {
	return e.Session + ":" + strconv.FormatUint(e.Seq, 10)
}

// loadError starts the Detail of a skill.activated event if the skill was not loaded.
const loadError = "error "

// LoadError returns the Detail of a skill.activated event for a skill that was not loaded.
func LoadError(code string) string { return loadError + code }

// ErrorCode returns the code of the plain error in which an attempt to load, read or run ended, or
// "" for all other events.
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
