package signed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
)

const (
	// MaxRoot is the size of the longest trusted root, in bytes.
	MaxRoot = 1 << 20
	// MaxQuestion is the size of the longest question, in bytes.
	MaxQuestion = 4 << 20
	maxAnswer   = 4 << 20

	verifierTime = time.Minute
)

// Question is the input of the program of a [Verifier], in JSON.
type Question struct {
	Root   []byte        `json:"trustedRoot"`
	Bundle []byte        `json:"bundle"`
	Digest digest.Digest `json:"digest,omitempty"` // SHA-256 of the signed bytes; empty for an envelope
}

// Answer is the output of the program about a verified bundle: the signer and, if the bundle is an envelope,
// its content.
type Answer struct {
	Issuer   string `json:"issuer"`
	Identity string `json:"identity"`
	Type     string `json:"payloadType,omitempty"`
	Payload  []byte `json:"payload,omitempty"`
}

// Verifier verifies bundles of identities with another program, see [Question] and [Answer]: the library for
// them would make this program much larger. It is safe for concurrent use. Its zero value fails for every
// bundle.
type Verifier struct {
	// Program returns the path of the program, or a *VerifierError. A user who can change the program can
	// forge any signer.
	Program func() (string, error)
	// Root is a trusted_root.json of Sigstore: the trusted certificates, logs and times.
	Root []byte
	// Env is the environment of the program.
	Env []string

	mu    sync.Mutex
	known map[[sha256.Size]byte]func() (*Answer, error)
}

// VerifierError is the reason why no bundle of an identity can be verified on this machine, with its remedy.
type VerifierError struct{ Reason string }

func (e *VerifierError) Error() string { return e.Reason }

// ask returns the answer about a bundle. A bundle is verified once, even if it is compared with many
// signers.
//
// Errors: *VerifierError; errors of ctx.
func (v *Verifier) ask(ctx context.Context, bundle []byte, sum digest.Digest) (*Answer, error) {
	if v == nil || len(v.Root) == 0 {
		return nil, &VerifierError{"an identity needs a trusted root: give a trusted_root.json " +
			"with --trusted-root, or as trust.root of the configuration"}
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s %s", sum, bundle))
	for {
		v.mu.Lock()
		if v.known == nil {
			v.known = map[[sha256.Size]byte]func() (*Answer, error){}
		}
		if v.known[key] == nil {
			v.known[key] = sync.OnceValues(func() (*Answer, error) { return v.run(ctx, bundle, sum) })
		}
		answer := v.known[key]
		v.mu.Unlock()
		known, err := answer()
		isCanceled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if !isCanceled {
			return known, err
		}
		// The caller that asked first was canceled, and others ask again.
		v.mu.Lock()
		delete(v.known, key)
		v.mu.Unlock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (v *Verifier) run(ctx context.Context, bundle []byte, sum digest.Digest) (*Answer, error) {
	program, err := v.Program()
	if err != nil {
		return nil, err
	}
	question, err := json.Marshal(Question{v.Root, bundle, sum})
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, verifierTime)
	defer cancel()
	cmd := exec.CommandContext(limited, program)
	// A nil environment would be the environment of this process, with its secrets.
	cmd.Env, cmd.WaitDelay, cmd.Stdin = append([]string{}, v.Env...), time.Second, bytes.NewReader(question)
	var out, problems bounded
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	failed, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case out.cut:
		return nil, &VerifierError{"skillsd-sigstore: the answer is too long"}
	case err == nil:
		return parseAnswer(out.text.Bytes())
	// Exit code 1 is the verdict about the bundle; anything else is a fault of this machine.
	case exited && failed.ExitCode() == 1:
		return nil, errors.New(lastLine(problems.text.Bytes()))
	case exited:
		return nil, &VerifierError{fmt.Sprintf("skillsd-sigstore: %s: %s", failed.ProcessState,
			lastLine(problems.text.Bytes()))}
	}
	return nil, &VerifierError{fmt.Sprintf("skillsd-sigstore: %v", err)}
}

// parseAnswer reads the answer of the program, without unknown fields and further values.
func parseAnswer(text []byte) (*Answer, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	// A program of another version may answer something that this one would overlook.
	decoder.DisallowUnknownFields()
	a := &Answer{}
	if err := decoder.Decode(a); err != nil {
		return nil, &VerifierError{"skillsd-sigstore: the answer is not the JSON of one"}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, &VerifierError{"skillsd-sigstore: more than one answer"}
	}
	if !visible(a.Issuer) || !visible(a.Identity) {
		return nil, fmt.Errorf("it is signed by %.200q of %.200q, which is not printable ASCII", a.Identity,
			a.Issuer)
	}
	return a, nil
}

// lastLine returns the last line of the program's error output, quoted.
func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Sprintf("%.500q", lines[len(lines)-1])
}

// bounded keeps the first maxAnswer bytes that are written.
type bounded struct {
	text bytes.Buffer
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	kept := p[:min(len(p), maxAnswer-b.text.Len())]
	b.cut = b.cut || len(kept) < len(p)
	b.text.Write(kept)
	// An error here would end the program with a broken pipe instead of its own message.
	return len(p), nil
}
