package provenance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
)

// Names of the files of a session in resources and events.
const (
	EventsFile           = "events.jsonl"
	SessionFile          = "session.json"
	LockFile             = "lock"
	RegistryFile         = "skill-registry.json"
	ActivationsFile      = "skill-activations.json"
	ResourceReadsFile    = "skill-resource-reads.json"
	ScriptExecutionsFile = "skill-script-executions.json"
	PolicyTraceFile      = "policy-trace.json"
	PolicySnapshotFile   = "policy-snapshot.json"
	CapabilitiesFile     = "capabilities.json"
	RunManifestFile      = "run-manifest.json"
	HeadNoteFile         = "head.note"
	OutputsDir           = "outputs"
	ShownDir             = "shown"
	OriginalsDir         = "originals"
)

const (
	maxSessionID = 128
	maxFileName  = 240
	nameBytes    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)

// NewSessionID returns "ses_" and a version 7 UUID, so that ids sort by creation time.
//
// Errors: the error of the system's random source.
func NewSessionID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make session id: %w", err)
	}
	return "ses_" + id.String(), nil
}

// ValidSessionID reports whether id can name a session and its directory: [A-Za-z0-9._-]+, not "."
// or "..", at most 128 bytes.
func ValidSessionID(id string) bool {
	return id != "" && len(id) <= maxSessionID && id != "." && id != ".." && strings.Trim(id, nameBytes) == ""
}

// OutputName returns the file name of a stored stream ("stdout" or "stderr") of an output id.
func OutputName(outputID, stream string) string {
	return CleanFileName(OutputsDir + "/" + outputID + "." + stream)
}

// ShownName returns the file name for bytes that were shown to the model.
func ShownName(d digest.Digest) string {
	return ShownDir + "/" + d.Encoded()
}

// IsShown reports whether name has the form of [ShownName].
func IsShown(name string) bool {
	hex, ok := strings.CutPrefix(name, ShownDir+"/")
	return ok && digest.NewDigestFromEncoded(digest.SHA256, hex).Validate() == nil
}

// CleanFileName returns name with ":" replaced by "_".
func CleanFileName(name string) string {
	return strings.ReplaceAll(name, ":", "_")
}

// CheckFileName returns an error unless Put can write a file with this name: NAME or outputs/NAME, where NAME
// consists of [A-Za-z0-9._-], does not start with a dot, has at most 240 bytes and is not reserved for the
// store.
//
// Errors: ErrInvalid.
func CheckFileName(name string) error {
	base, output := strings.CutPrefix(name, OutputsDir+"/")
	switch {
	case base == "" || len(base) > maxFileName || base[0] == '.' || strings.Trim(base, nameBytes) != "":
		return fmt.Errorf("%w: file name %.60q", ErrInvalid, name)
	case output:
		return nil
	case IsView(name), name == EventsFile, name == SessionFile, name == LockFile, name == HeadNoteFile,
		name == OutputsDir, name == ShownDir, name == OriginalsDir:
		return fmt.Errorf("%w: file name %q is the store's own", ErrInvalid, name)
	}
	return nil
}

// CheckArtifactName returns an error unless a session can have a file with this name, apart from its lock.
//
// Errors: ErrInvalid.
func CheckArtifactName(name string) error {
	switch name {
	case SessionFile, EventsFile, HeadNoteFile:
		return nil
	}
	if IsView(name) || IsShown(name) {
		return nil
	}
	return CheckFileName(name)
}

// ViewNames returns the names of the views of a session, without session.json.
func ViewNames() []string {
	return []string{ActivationsFile, ResourceReadsFile, ScriptExecutionsFile, PolicyTraceFile}
}

// IsView reports whether name is one of [ViewNames].
func IsView(name string) bool {
	return slices.Contains(ViewNames(), name)
}
