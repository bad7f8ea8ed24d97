package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	"github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/rogpeppe/go-internal/testscript"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/skillsd/skillsd/skills/source/signed"
	"github.com/skillsd/skillsd/skills/source/signed/sigstoretest"
)

// verifier builds the program that verifies identities, in a directory of its own.
var verifier = sync.OnceValues(func() (string, error) {
	program := filepath.Join(filepath.Dir(binary), "verifier", "skillsd-sigstore")
	build := exec.Command("go", "build", "-o", program, "../cmd/skillsd-sigstore")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build skillsd-sigstore: %w\n%s", err, out)
	}
	return program, nil
})

// sigstores are the Sigstores of scripts, by the paths of their roots.
var sigstores sync.Map

func scriptSigstore(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sigstore ROOT")
	}
	program, err := verifier()
	ts.Check(err)
	ts.Setenv("VERIFIER", program)
	ts.Setenv("VERIFIERDIR", filepath.Dir(program))
	s, err := sigstoretest.New()
	ts.Check(err)
	root := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(root, s.Root, 0o600))
	sigstores.Store(root, s)
	ts.Defer(func() { sigstores.Delete(root) })
}

func scriptSignAs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: sign-as ROOT IDENTITY ISSUER FILE|DIR|oci://REFERENCE")
	}
	known, ok := sigstores.Load(ts.MkAbs(args[0]))
	if !ok {
		ts.Fatalf("there is no Sigstore with the root %s", args[0])
	}
	s, issuer, at := known.(*sigstoretest.Sigstore), args[2], ts.MkAbs(args[3])
	identity, err := strconv.Unquote(`"` + args[1] + `"`)
	ts.Check(err)
	if reference, ok := strings.CutPrefix(args[3], "oci://"); ok {
		ts.Check(signManifest(s, identity, issuer, reference))
		return
	}
	info, err := os.Stat(at)
	ts.Check(err)
	if info.IsDir() {
		statement, err := modelStatement(at)
		ts.Check(err)
		bundle, err := s.Statement(identity, issuer, statement)
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(at, "skill.sigstore"), bundle, 0o600))
		return
	}
	data, err := os.ReadFile(at)
	ts.Check(err)
	bundle, err := s.File(identity, issuer, data, time.Now().Add(time.Minute))
	ts.Check(err)
	ts.Check(os.WriteFile(at+signed.End, bundle, 0o600))
}

// modelStatement returns the statement of OpenSSF Model Signing about a directory.
func modelStatement(dir string) (string, error) {
	all, list := sha256.New(), []string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == "skill.sigstore" {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		sum := sha256.Sum256(data)
		all.Write(sum[:])
		list = append(list, fmt.Sprintf(`{"name":%q,"algorithm":"sha256","digest":"%x"}`, name, sum))
		return err
	})
	return fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"x","digest":{"sha256":"%x"}}],`+
		`"predicateType":"https://model_signing/signature/v1.0","predicate":{"serialization":{"method":"files"},`+
		`"resources":[%s]}}`, all.Sum(nil), strings.Join(list, ",")), err
}

// signManifest pushes the bundle of what a registry has, as cosign does.
func signManifest(s *sigstoretest.Sigstore, identity, issuer, reference string) error {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	repository, err := remote.NewRepository(reference)
	if err != nil {
		return err
	}
	repository.PlainHTTP = true
	subject, err := repository.Resolve(ctx, repository.Reference.Reference)
	if err != nil {
		return err
	}
	bundle, err := s.Statement(identity, issuer, fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1",`+
		`"predicateType":"https://sigstore.dev/cosign/sign/v1","subject":[{"name":"x","digest":{"sha256":%q}}],"predicate":{}}`,
		subject.Digest.Encoded()))
	if err != nil {
		return err
	}
	push := func(kind string, data []byte) (v1.Descriptor, error) {
		at := v1.Descriptor{MediaType: kind, Digest: digest.FromBytes(data), Size: int64(len(data))}
		return at, repository.Push(ctx, at, bytes.NewReader(data))
	}
	if _, err := push(v1.MediaTypeEmptyJSON, []byte("{}")); err != nil {
		return err
	}
	layer, err := push(signed.BundleType, bundle)
	if err != nil {
		return err
	}
	text, err := json.Marshal(v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		ArtifactType: signed.BundleType, Config: v1.DescriptorEmptyJSON, Layers: []v1.Descriptor{layer}, Subject: &subject})
	if err == nil {
		_, err = push(v1.MediaTypeImageManifest, text)
	}
	return err
}
