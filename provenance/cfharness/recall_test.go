package cfharness_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// events is a record.
type events struct {
	provenance.Reader
	all []*provenance.Event
}

func (r events) Events(context.Context, provenance.Query) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		for _, e := range r.all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// kindsOfEvents returns every kind that there is.
func kindsOfEvents(t *testing.T) (kinds []provenance.Kind) {
	t.Helper()
	source, err := os.ReadFile("../event.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`Kind\s+= "(.*)"`).FindAllStringSubmatch(string(source), -1) {
		kinds = append(kinds, provenance.Kind(m[1]))
	}
	if len(kinds) < 15 {
		t.Fatalf("event.go has %d kinds", len(kinds))
	}
	return append(kinds, "install.done")
}

// someEvents returns n events with what a Recollection is made of, in any order that a record can have or not.
func someEvents(t *testing.T, seed uint64, n int) (all []*provenance.Event) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1))
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	kinds := kindsOfEvents(t)
	start := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	for i := range n {
		at := provenance.Stamp(start.Add(time.Duration(i) * time.Second))
		kind := kinds[rnd.IntN(len(kinds))]
		if i == 0 {
			kind = provenance.KindSessionStarted
		}
		output := fmt.Sprintf("s:%s:%d", one("run", "read"), rnd.IntN(20))
		e := &provenance.Event{Seq: uint64(i + 1), Time: at.Time, Kind: kind, Session: "s", Principal: "local",
			Parent: one("", "p"), Skill: one("pdf", "xlsx"), Detail: one("model", "user", "<&>", "preload"),
			Hash: digest.FromString(fmt.Sprint(i)).Encoded()}
		decision := &cfharness.DecisionExtension{OutputID: output}
		e.Decision = raw(t, cfharness.PolicyDecision{Sequence: rnd.IntN(100), Decision: "allowed",
			Mode: one("observe", "enforce-explicit"), Skillsd: decision,
			ReasonCodes: []string{one("x", cfharness.RuleResumeReload)}})
		e.Invocation = json.RawMessage(fmt.Sprintf(`{"sequence":%d}`, rnd.IntN(100)))
		switch kind {
		case provenance.KindSessionStarted, provenance.KindSessionResumed:
			e.Row = raw(t, provenance.SessionInfo{Mode: one("observe", "enforce-strict"), Child: rnd.IntN(2) > 0,
				ClientSession: one("", "c"), Profile: one("", "q"), ParentSession: one("", "ps")})
		case provenance.KindSkillActivated:
			row := cfharness.Activation{Name: e.Skill, Digest: digest.FromString("a"), ActivatedAt: at,
				Source: cfharness.Source(one("model", "user", "preload"))}
			if rnd.IntN(4) > 0 {
				row.Skillsd = &cfharness.ActivationExtension{Path: e.Skill, ExpiresAt: &at,
					HandleDigest: digest.FromString(one("a", "b", "c")), Repeated: rnd.IntN(3) == 0,
					Sent: rnd.IntN(2) > 0, Suspicious: []string{"invisible-text"}}
			}
			e.Row = raw(t, row)
		case provenance.KindScriptRequested, provenance.KindApprovalAsked:
			e.Row = raw(t, cfharness.ScriptRequest{OutputID: output})
		case provenance.KindResourceRead, provenance.KindScriptExecuted:
			e.Row = json.RawMessage(`{"outputId":"` + output + `","sequence":` + one("1", "2") + `}`)
		default:
			e.Row = json.RawMessage(one("", `{}`, `{"outputId":7}`, `{"sequence":null,"outputId":"\u0061:9"}`,
				`{"outputID":"other:1","outputId":"x:3"}`,
				`{"outputId":"=3+a:04"}`, `{"outputId":"7"}`, `{"outputId":"1+a:b"}`,
				`{"outputId":"z:18446744073709551615"}`))
		}
		all = append(all, e)
	}
	return all
}

// kept returns a fold as it is after it was kept.
func kept(t *testing.T, f *cfharness.Fold) (again cfharness.Fold) {
	t.Helper()
	data, err := provenance.Encode(f)
	if err == nil {
		err = json.Unmarshal(data, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// Whatever the events are, and wherever their fold was kept and continued, they make the same Recollection.
func TestFoldContinued(t *testing.T) {
	unset := map[string]bool{}
	for i := range reflect.TypeFor[cfharness.Recollection]().NumField() {
		unset[reflect.TypeFor[cfharness.Recollection]().Field(i).Name] = true
	}
	for seed := range uint64(20) {
		all := someEvents(t, seed, 60)
		want, err := cfharness.Recall(t.Context(), events{all: all}, "s")
		if err != nil {
			t.Fatal(err)
		}
		for cut := range all {
			var f cfharness.Fold
			for i, e := range all {
				if i != cut {
					if err := f.Add(e); err != nil {
						t.Fatal(err)
					}
					continue
				}
				f = kept(t, &f)
				early := f.Recollection()
				before := string(raw(t, early))
				if err := f.Add(e); err != nil {
					t.Fatal(err)
				}
				if after := string(raw(t, early)); after != before {
					t.Fatalf("a later event changed %s to %s", before, after)
				}
			}
			if got := f.Recollection(); !reflect.DeepEqual(got, want) || f.Head.Seq != 60 {
				t.Fatalf("seed %d, kept after %d events:\ngot  %s\nwant %s", seed, cut, raw(t, got), raw(t, want))
			}
		}
		for name := range unset {
			if !reflect.ValueOf(*want).FieldByName(name).IsZero() {
				delete(unset, name)
			}
		}
	}
	for name := range unset {
		t.Errorf("no events set %s", name)
	}
}

// A fold of another form is not continued, so each change of it needs another number.
func TestFoldForm(t *testing.T) {
	var f cfharness.Fold
	for _, e := range someEvents(t, 1, 200) {
		if err := f.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	var shape strings.Builder
	writeShape(&shape, reflect.TypeFor[cfharness.Fold]())
	shape.Write(raw(t, f.Recollection()))
	shape.Write(raw(t, &f))
	const form, want = 3, "280e6ead12ca4f91"
	sum := digest.FromString(shape.String()).Encoded()[:16]
	if cfharness.FoldForm != form || sum != want {
		t.Errorf("form %d is %s, not %s of form %d: raise FoldForm, and have both here", cfharness.FoldForm, sum,
			want, form)
	}
}

// writeShape writes what a type is as JSON.
func writeShape(w *strings.Builder, of reflect.Type) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		w.WriteString(of.Kind().String() + " ")
		writeShape(w, of.Elem())
	case reflect.Struct:
		w.WriteString("{")
		for i := range of.NumField() {
			if f := of.Field(i); f.IsExported() && f.Type != reflect.TypeFor[time.Time]() {
				w.WriteString(f.Name + " " + string(f.Tag) + " ")
				writeShape(w, f.Type)
			}
		}
		w.WriteString("}")
	default:
		w.WriteString(of.Kind().String() + ";")
	}
}
