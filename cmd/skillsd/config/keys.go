package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skillsd/skillsd/skills"
)

// Keys are the keys of the configuration file. The table of all options is read off this
// struct: the json tag is a key, the flag tag the flag of the same meaning, whose help describes
// both, and the environment variable follows from the flag. A field without a flag is told in the
// file only and described by its jsonschema tag; a struct with parts is one flag of NAME=VALUE pairs.
//
// The other tags: enum lists the words there are, path:"true" resolves a path as the file means it,
// and a field without omitempty is required.
type Keys struct {
	Roots      []RootKey               `json:"roots,omitempty" flag:"skills-root"`
	Scan       scanKeys                `json:"scan,omitempty" jsonschema:"how roots are read"`
	Skills     skillKeys               `json:"skills,omitempty" jsonschema:"choices for single skills"`
	Catalog    catalogKeys             `json:"catalog,omitempty" jsonschema:"how skills are named to models"`
	Watch      bool                    `json:"watch,omitempty" flag:"watch"`
	AllowTools []string                `json:"allow_tools,omitempty" flag:"allow-tool" enum:"run_skill_script"`
	Allow      []AllowKey              `json:"allow,omitempty" flag:"allow-skill-script"`
	Secrets    map[string]SecretKey    `json:"secrets,omitempty" jsonschema:"where the secrets come from that entries of allow hand to their scripts, by the name of the variable the script sees; the values stand nowhere in this file"`
	Profiles   map[string]profileKey   `json:"profiles,omitempty" jsonschema:"profiles, by name; each only narrows"`
	Principals map[string]PrincipalKey `json:"principals,omitempty" flag:"auth-evidence" jsonschema:"principals of HTTP, by name"`
	Policy     policyKeys              `json:"policy,omitempty" jsonschema:"what is decided and on which evidence"`
	Workspace  workspaceKeys           `json:"workspace,omitempty" jsonschema:"what scripts see at /workspace"`
	Limits     limitKeys               `json:"limits,omitempty" parts:"limit" jsonschema:"limits of a run, its defaults and the most a call or an entry may ask for, and of runs at once"`
	Sandbox    sandboxKeys             `json:"sandbox,omitempty" jsonschema:"how scripts are isolated"`
	State      string                  `json:"state,omitempty" flag:"state" path:"true"`
	Artifacts  string                  `json:"artifacts,omitempty" flag:"artifact-root" path:"true"`
	Sessions   sessionKeys             `json:"sessions,omitempty" jsonschema:"records of sessions"`
	HTTP       httpKeys                `json:"http,omitempty" jsonschema:"serving over HTTP"`
	Log        logKeys                 `json:"log,omitempty" jsonschema:"the log on stderr"`
	Metrics    metricsKeys             `json:"metrics,omitempty" jsonschema:"metrics for Prometheus"`
}

type scanKeys struct {
	AllowRoots     []string      `json:"allow_roots,omitempty" flag:"allow-root" path:"true"`
	StrictRoots    bool          `json:"strict_roots,omitempty" flag:"strict-roots"`
	NoDefaultRoots bool          `json:"no_default_roots,omitempty" flag:"no-default-roots"`
	AllowShadow    bool          `json:"allow_shadow,omitempty" flag:"allow-shadow"`
	Limits         scanLimitKeys `json:"limits,omitempty" parts:"scan-limit" jsonschema:"limits of the scan of one root"`
}

type scanLimitKeys struct {
	Depth       int `json:"depth,omitempty" jsonschema:"levels of directories below a root, 8 when not said"`
	Directories int `json:"directories,omitempty" jsonschema:"directories below a root, 20000 when not said"`
	Files       int `json:"files,omitempty" jsonschema:"files of one skill, 2000 when not said"`
	Bytes       int `json:"bytes,omitempty" jsonschema:"bytes of one skill, 268435456 when not said"`
}

type skillKeys struct {
	Preload    []string `json:"preload,omitempty" flag:"skill"`
	Disabled   []string `json:"disabled,omitempty" flag:"disable-skill"`
	Pinned     []string `json:"pinned,omitempty" flag:"pin-skill"`
	NameOnly   []string `json:"name_only,omitempty" flag:"name-only"`
	Validation string   `json:"validation,omitempty" flag:"validation" enum:"lenient|strict"`
}

type catalogKeys struct {
	Disabled bool   `json:"disabled,omitempty" flag:"no-skill-catalog"`
	Search   string `json:"search,omitempty" flag:"search" enum:"auto|always"`
}

type policyKeys struct {
	Mode         string            `json:"mode,omitempty" flag:"cfc-enforcement-mode" enum:"disabled|observe|enforce-explicit|enforce-strict"`
	Role         string            `json:"prompt_slot_role,omitempty" flag:"prompt-slot-role" enum:"direct-command|context|quote"`
	Release      string            `json:"release,omitempty" flag:"release" enum:"none|observed|opaque"`
	AllowedTools string            `json:"allowed_tools,omitempty" flag:"allowed-tools" enum:"enforce|advisory"`
	TierScripts  map[string]string `json:"tier_scripts,omitempty" flag:"tier-scripts" keys:"TIER" enum:"deny"`
	Drift        string            `json:"drift,omitempty" flag:"drift" enum:"report|refuse"`
	Profile      string            `json:"profile,omitempty" flag:"profile"`
	Target       string            `json:"execution_target,omitempty" flag:"skill-script-execution-target" enum:"sandbox|host"`
}

type workspaceKeys struct {
	Dir        string `json:"dir,omitempty" flag:"workspace" path:"true"`
	FromClient bool   `json:"from_client,omitempty" flag:"workspace-from-client"`
}

type limitKeys struct {
	Timeout Duration `json:"timeout,omitempty" jsonschema:"wall clock, 60s when not said, 600s at most"`
	CPU     Duration `json:"cpu,omitempty" jsonschema:"processor time of one process, 2s more than timeout when not said"`
	Memory  Size     `json:"memory,omitempty" jsonschema:"of all processes together, 512MiB when not said"`
	PIDs    int      `json:"pids,omitempty" jsonschema:"processes and threads, 64 when not said"`
	Files   int      `json:"files,omitempty" jsonschema:"descriptors open in one process, 256 when not said"`
	Scratch Size     `json:"scratch,omitempty" jsonschema:"/tmp, and the changes to a staged workspace, 64MiB when not said"`
	Inodes  int      `json:"inodes,omitempty" jsonschema:"files and directories in the same, 16384 when not said"`
	File    Size     `json:"file,omitempty" jsonschema:"one file written, 64MiB when not said"`
	Output  Size     `json:"output,omitempty" jsonschema:"kept of each stream, 1MiB when not said"`

	Concurrent int `json:"concurrent,omitempty" jsonschema:"runs at once, the rest wait; 4 for each processor when not said, 1024 at most"`
}

type sandboxKeys struct {
	Backend string `json:"backend,omitempty" flag:"sandbox" enum:"auto|native|bwrap|runsc|seatbelt"`
}

type sessionKeys struct {
	Resume      string `json:"resume,omitempty" flag:"resume"`
	ResumeDrift string `json:"resume_drift,omitempty" flag:"resume-drift" enum:"fail|reload"`
	SignKey     string `json:"sign_key,omitempty" flag:"sign-key" path:"true"`
	RunManifest string `json:"run_manifest,omitempty" flag:"run-manifest" path:"true"`
	KeepShown   bool   `json:"keep_shown,omitempty" flag:"keep-shown"`
}

type httpKeys struct {
	Addr           string   `json:"addr,omitempty" flag:"http"`
	Unix           string   `json:"unix,omitempty" flag:"unix" path:"true"`
	Path           string   `json:"path,omitempty" flag:"http-path"`
	AllowedHosts   []string `json:"allowed_hosts,omitempty" flag:"allowed-host"`
	AllowedOrigins []string `json:"allowed_origins,omitempty" flag:"allowed-origin"`
	PublicURL      string   `json:"public_url,omitempty" flag:"public-url"`
	TLSCert        string   `json:"tls_cert,omitempty" flag:"tls-cert" path:"true"`
	TLSKey         string   `json:"tls_key,omitempty" flag:"tls-key" path:"true"`
	RateLimit      float64  `json:"rate_limit,omitempty" flag:"rate-limit"`
	NoAuth         bool     `json:"insecure_no_auth,omitempty" flag:"insecure-no-auth"`
	Auth           authKeys `json:"auth,omitempty" jsonschema:"who is let in"`
}

type authKeys struct {
	TokenFile  string   `json:"token_file,omitempty" flag:"auth-token-file" path:"true"`
	Issuer     string   `json:"issuer,omitempty" flag:"auth-issuer"`
	Audiences  []string `json:"audiences,omitempty" flag:"auth-audience"`
	JWKS       string   `json:"jwks,omitempty" flag:"auth-jwks" path:"or-url"`
	Algorithms []string `json:"algorithms,omitempty" flag:"auth-algorithm"`
	Scopes     []string `json:"scopes,omitempty" flag:"auth-scope"`
}

type logKeys struct {
	Level  string `json:"level,omitempty" flag:"log-level" enum:"debug|info|warn|error"`
	Format string `json:"format,omitempty" flag:"log-format" enum:"auto|text|json"`
}

type metricsKeys struct {
	Addr     string `json:"addr,omitempty" flag:"metrics"`
	Insecure bool   `json:"insecure,omitempty" flag:"metrics-insecure"`
}

// RootKey is a root: a string as --skills-root takes it, or an object.
type RootKey struct {
	Dir    string `json:"dir" path:"true" jsonschema:"directory or zip archive with skills"`
	Tier   string `json:"tier,omitempty" enum:"TIER" jsonschema:"how far it is trusted, user when not said"`
	Prefix string `json:"prefix,omitempty" jsonschema:"put in front of the paths of its skills"`
}

// text is the root as --skills-root takes it.
func (k RootKey) text() string {
	tier := k.Tier
	if tier == "" {
		tier = skills.TierUser.String()
	}
	if k.Prefix != "" {
		tier += ":" + k.Prefix
	}
	return tier + "=" + k.Dir
}

// AllowKey is an entry of the allowlist: a string as --allow-skill-script takes it, or an object.
type AllowKey struct {
	Script    string   `json:"script" jsonschema:"SKILL:scripts/PATH or SKILL:scripts/PATH@sha256:HEX"`
	Tree      string   `json:"tree,omitempty" jsonschema:"sha256:HEX of all files of the skill, beside the digest of the script; what stands beside the script may change when not said"`
	Network   []string `json:"network,omitempty" jsonschema:"hosts a run may reach: NAME or NAME:PORT, exactly; none when not said"`
	Env       []string `json:"env,omitempty" jsonschema:"variables of the server's environment that are passed through"`
	Secrets   []string `json:"secrets,omitempty" jsonschema:"secrets the script gets, by their names in secrets"`
	Workspace string   `json:"workspace,omitempty" enum:"none|ro|staged|rw" jsonschema:"how it sees the workspace; as the workspace is granted when not said"`
	Timeout   Duration `json:"timeout,omitempty" jsonschema:"longest run, such as 90s; the limit of the server when not said"`
	Memory    Size     `json:"memory,omitempty" jsonschema:"most memory, such as 256MiB; the limit of the server when not said"`
	Approve   string   `json:"approve,omitempty" enum:"tier|always|never" jsonschema:"whether the user is asked: as the trust tier says, for every run, or not even when the tier says so"`
	Target    string   `json:"target,omitempty" enum:"sandbox|host" jsonschema:"where it runs; host takes execution_target host or a profile as well"`
	Release   string   `json:"release,omitempty" enum:"none|observed|opaque" jsonschema:"release of its output; that of policy when not said"`
	Execution string   `json:"execution,omitempty" enum:"stdin" jsonschema:"stdin hands a bash, sh or deno script to its interpreter on standard input, without its place in the skill; from the stored tree when not said"`
}

// SecretKey says where a secret comes from: exactly one of its fields is set.
type SecretKey struct {
	Env  string `json:"env,omitempty" jsonschema:"variable of the server's environment that holds it"`
	File string `json:"file,omitempty" path:"true" jsonschema:"file that holds it; a line end at its end is no part of it"`
}

type profileKey struct {
	Skills  []string `json:"skills,omitzero" jsonschema:"paths of the skills it leaves; all when not said"`
	Scripts []string `json:"scripts,omitzero" jsonschema:"SKILL:scripts/PATH of the scripts it leaves; all when not said"`
	Tools   []string `json:"tools,omitzero" enum:"load_skill|read_skill_resource|search_skills|run_skill_script" jsonschema:"tools it leaves; all when not said"`
	Target  string   `json:"target,omitempty" enum:"sandbox|host" jsonschema:"where its scripts run"`
}

// PrincipalKey says how far a principal is trusted, and what it may use.
type PrincipalKey struct {
	Evidence bool   `json:"evidence,omitempty" jsonschema:"believe what it says about prompt slots and modes"`
	Profile  string `json:"profile,omitempty" jsonschema:"profile of all its requests"`
}

// fromScalar is a key that may stand as one scalar.
type fromScalar interface{ setScalar(text string) error }

// Duration is a duration such as 60s or 1m30s.
type Duration time.Duration

func (k *Duration) setScalar(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is no duration such as 60s or 2m", Clip(text))
	}
	*k = Duration(d)
	return nil
}

func (k Duration) String() string {
	text := time.Duration(k).String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}

// MarshalText writes what setScalar reads.
func (k Duration) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Size is a number of bytes, such as 512MiB or 1048576.
type Size int64

func (k *Size) setScalar(text string) error {
	n, err := ParseSize(text)
	if err != nil {
		return err
	}
	*k = Size(n)
	return nil
}

// parseCount reads how many there may be of something, in plain digits: what some read as octal, or as a
// sum with a sign, is none.
func parseCount(text string) (int64, error) {
	const most = 1 << 50
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && text[0] != '-', err == nil && n > most:
		return 0, fmt.Errorf("%s is more than %d", Clip(text), most)
	case err != nil || n < 1 || strconv.FormatInt(n, 10) != text:
		return 0, fmt.Errorf("%q is no positive whole number in plain digits", Clip(text))
	}
	return n, nil
}

// ParseSize reads a positive number of bytes with an optional unit.
func ParseSize(text string) (int64, error) {
	digits, unit := text, int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			digits, unit = rest, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > (1<<50)/unit || strings.HasPrefix(digits, "+") {
		return 0, fmt.Errorf("%q is no size such as 512MiB, 64KiB, 1GiB or a number of bytes", Clip(text))
	}
	return n * unit, nil
}

func (k Size) String() string { return FormatSize(int64(k)) }

// MarshalText writes what setScalar reads.
func (k Size) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// FormatSize writes a size so that parseSize reads the same.
func FormatSize(n int64) string {
	for i, suffix := range []string{"GiB", "MiB", "KiB"} {
		if unit := int64(1) << (10 * (3 - i)); n%unit == 0 && n >= unit {
			return strconv.FormatInt(n/unit, 10) + suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// Clip bounds a value before it is repeated.
func Clip(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
