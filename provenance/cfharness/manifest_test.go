package cfharness_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

const fullManifest = `{"own":{"a":1.0},"source":"loom","version":1,"type":"cf-harness.loom-run-manifest","instanceId":"i","wishId":"w","parentWishId":"p",
	"dispatchClass":"d","capabilityProfile":"c","model":"m","modelProvider":"openai-codex","modelAuthSource":"none",
	"credentialOwner":{"type":"cf-harness.credential-owner-ref","version":1,"ownerKey":"k","tenantKey":"t","x":1},
	"harnessHomeIdentity":"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	"workspace":{"hostPath":"/h","sandboxPath":"/workspace","cwd":"."},"promptSlot":{"role":"context"},
	"cfc":{"enforcementMode":"observe","labelSource":"loom-run-manifest"},"extra":{"any":[]}}`

func TestParseRunManifest(t *testing.T) {
	m, err := cfharness.ParseRunManifest([]byte(fullManifest))
	if err != nil {
		t.Fatal(err)
	}
	var same json.RawMessage
	same, err = cfharness.Stringify([]byte(fullManifest))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := cfharness.Stringify(m.Raw)
	if err != nil || string(kept) != string(same) {
		t.Errorf("kept %s, want %s", kept, same)
	}
	m.Raw = nil
	want := &cfharness.RunManifest{WishID: "w", ParentWishID: "p", DispatchClass: "d", CapabilityProfile: "c",
		PromptSlot: json.RawMessage(`{"role":"context"}`), Mode: "observe", LabelSource: "loom-run-manifest"}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m, err = cfharness.ParseRunManifest([]byte(`{"WishID":"no","cfc":{}}`))
	if err != nil || string(m.Raw) != `{"type":"cf-harness.loom-run-manifest","version":1,"source":"loom","WishID":"no","cfc":{}}` || m.WishID != "" || m.Mode != "" || m.PromptSlot != nil {
		t.Errorf("sparse = %s, %+v, %v", m.Raw, m, err)
	}
}

// What may be absent may not be wrong, at any key.
func TestRunManifestRefused(t *testing.T) {
	for _, text := range []string{
		``, `null`, `[]`, `"x"`, `{}{}`, `{"a":1,"a":2}`, `{"a":"` + "\xff" + `"}`, `{"extra":{"a":1,"a":1}}`,
		`{"type":"cf-harness.run-manifest"}`, `{"type":null}`, `{"version":2}`, `{"version":"1"}`, `{"version":1.5}`, `{"source":"mine"}`, `{"source":null}`,
		`{"wishId":1}`, `{"wishId":null}`, `{"instanceId":{}}`, `{"parentWishId":[]}`, `{"dispatchClass":true}`, `{"capabilityProfile":0}`, `{"model":null}`,
		`{"modelProvider":"other"}`, `{"modelAuthSource":"other"}`, `{"credentialOwner":{}}`, `{"credentialOwner":{"type":"x","version":1,"ownerKey":"k"}}`,
		`{"credentialOwner":{"type":"cf-harness.credential-owner-ref","version":1,"ownerKey":1}}`, `{"credentialOwner":"k"}`,
		`{"harnessHomeIdentity":"sha256:x"}`, `{"harnessHomeIdentity":"abc"}`, `{"workspace":{"hostPath":1}}`, `{"workspace":[]}`,
		`{"promptSlot":"direct-command"}`, `{"promptSlot":null}`, `{"cfc":{"enforcementMode":"off"}}`, `{"cfc":{"enforcementMode":null}}`, `{"cfc":{"labelSource":"x"}}`, `{"cfc":[]}`, `{"extra":1}`,
		`{"x":"` + strings.Repeat("a", cfharness.MaxRunManifest) + `"}`, strings.Repeat(`{"x":`, 20000),
	} {
		if m, err := cfharness.ParseRunManifest([]byte(text)); !errors.Is(err, provenance.ErrInvalid) {
			t.Errorf("ParseRunManifest(%.60s) = %+v, %v", text, m, err)
		}
	}
}

// What is kept is a manifest that says the same.
func FuzzParseRunManifest(f *testing.F) {
	f.Add([]byte(fullManifest))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"type":"cf-harness.loom-run-manifest","promptSlot":{"role":"quote"},"cfc":{"enforcementMode":"disabled"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := cfharness.ParseRunManifest(data)
		if err != nil {
			if !errors.Is(err, provenance.ErrInvalid) || m != nil {
				t.Fatalf("ParseRunManifest(%q) = %v, %v", data, m, err)
			}
			return
		}
		if len(m.Raw) > cfharness.MaxRunManifest {
			return // what was filled in made it too long
		}
		again, err := cfharness.ParseRunManifest(m.Raw)
		if err != nil {
			t.Fatalf("%q is kept as %q: %v", data, m.Raw, err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("%q is kept as %q:\n%s", data, m.Raw, diff)
		}
	})
}
