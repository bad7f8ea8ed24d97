package elsewhere

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// Job is a script that a server was asked to run, and allowed. The worker trusts the server about its client
// and user only: it decides by its own allowlist, and runs its own copy of the script.
type Job struct {
	Run       string // id of the output
	Session   string
	At        time.Time // of the call
	Method    string
	Principal string
	Mode      policy.Mode
	Unnamed   bool // see [policy.Request]

	Skill, Path string
	Tree        digest.Digest // of the skill's files
	Args        []string
	Cwd         string
	Stdin       []byte // nil: no standard input
	Timeout     time.Duration
	Limits      sandbox.Limits // the most of each that the server lets it have

	// Grant is how the server allowed the run. The worker takes from it that the user wants the run, and
	// whether they were asked.
	Grant policy.Grant
}

// Worker is who ran a job, or refused to.
type Worker struct {
	Name  string
	Rules digest.Digest // of what it decides by, but for its skills
}

// Done is what became of a job: a refusal, an error, or else a result.
type Done struct {
	Worker

	Denial  *policy.Denial
	Failure *Failure

	// Set with a result. The secrets of the worker are removed.
	Result    *sandbox.Result
	Withheld  []int // files of /out that contain a secret
	Recounted bool
	Record    cfharness.RunExtension // but for what the server shows of it
	Argv, Ran []string
	Cwd       string
	Env       *cfharness.EnvSummary
	Release   policy.Release
}

// Failure is a plain error.
type Failure struct{ Code, Message, Remedy, Plain string }

// Pool has the workers of a server.
type Pool interface {
	// Acquire waits for a slot at a worker for the run with an id, which it asks for after meant has returned
	// nil, and calls waiting with the number of runs before it. Its errors are *sandbox.UnavailableError,
	// ErrBusy, or the error of meant or ctx.
	Acquire(ctx context.Context, run, principal string, meant func() error,
		waiting func(before int)) (Slot, error)
	// Late returns a job whose outcome is not known, and its Done, when a worker has it. It calls lost, once,
	// when none has for some seconds. Its error is the error of ctx.
	Late(ctx context.Context, run string, lost func()) (job, done []byte, err error)
}

// Slot is a slot at a worker.
type Slot interface {
	Queued() bool
	Release()
	// Run runs a job and returns its Done. Its errors are ErrBusy if it did not start, ErrUnknown.
	Run(ctx context.Context, job []byte) ([]byte, error)
}

// Errors of a Pool.
var (
	ErrBusy    = errors.New("no worker began the run in time")
	ErrUnknown = errors.New("the worker that ran it is silent")
)

// Encode returns a job or what became of it as bytes.
func Encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		// No type of this package fails to marshal.
		panic("elsewhere: not JSON: " + err.Error())
	}
	return data
}
