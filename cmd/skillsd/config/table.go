package config

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/environment/making"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"

	"github.com/spf13/pflag"
)

// Option is one option: its names on the command line, in the environment and in the configuration file, its
// possible values, and where its value is kept. Help, completion, `config show` and the JSON Schema are made
// from it.
type Option struct {
	Key     string // in the file, with dots; empty for an option of the command line only
	Flag    string // without hyphens; empty for an option of the file only
	Part    string // the name in a flag of NAME=VALUE pairs; else empty
	Default string
	Section Section
	Help    string // as pflag takes it: the name of the value is in backquotes

	Words    []string // the values there are; empty for any
	Names    []string // of a mapping: the names there are; empty for any
	Path     PathKind
	Required bool // in its object

	// Value points to the value; the type says what the option may be.
	Value any
	// InFile points to the value of the file where that holds more, or is written otherwise, than a flag
	// can say.
	InFile any

	least, most int64 // of a number; 0 for no bound
}

// inFile returns what points to the value that the file gives.
func (o *Option) inFile() any {
	if o.InFile != nil {
		return o.InFile
	}
	return o.Value
}

// Section is the heading of an option in a help text with many flags.
type Section string

// The sections of the help of serve.
const (
	SectionSkills  Section = "Skills"
	SectionPolicy  Section = "What may run, on which evidence"
	SectionRuns    Section = "How scripts run"
	SectionHTTP    Section = "HTTP"
	SectionCluster Section = "Cluster"
	SectionRecords Section = "Records, log and metrics"
)

// Sections returns all sections, in the order of the help.
func Sections() []Section {
	return []Section{SectionSkills, SectionPolicy, SectionRuns, SectionHTTP, SectionCluster, SectionRecords}
}

// PathKind says whether a value is a path. In the file a path is relative to the file.
type PathKind int

const (
	noPath PathKind = iota
	anyPath
	pathOrURL
)

// IsPath reports whether a value of the kind is a path. A mode without a directory (:staged) is not one.
func (k PathKind) IsPath(value string) bool {
	return k == anyPath && !strings.HasPrefix(value, ":") || k == pathOrURL && !strings.Contains(value, "://")
}

// Env returns the environment variable of the option, empty for an option of the file only.
func (o *Option) Env() string {
	if o.Key == "" {
		return ""
	}
	return EnvOf(o.Flag)
}

// envPrefix begins the names of the variables of all options.
const envPrefix = "SKILLSD_"

// EnvOf returns the environment variable of a flag, empty for no flag.
func EnvOf(flag string) string {
	if flag == "" {
		return ""
	}
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// under gives a section to the options that have none.
func under(section Section, options []Option) []Option {
	for i := range options {
		options[i].Section = cmp.Or(options[i].Section, section)
	}
	return options
}

// Table returns all options, in the order of the file.
func Table() []Option { return new(Options).Table() }

func releaseWords() []string { return []string{"none", "observed", "opaque"} }
func targetWords() []string  { return []string{"sandbox", "host"} }

// flagHelp describes the flags of NAME=VALUE pairs; their parts describe themselves.
var flagHelp = map[string]string{
	"scan-limit": "limit of the scan of one root: depth=8, directories=20000, files=2000 in one skill, " +
		"bytes=268435456 of one skill (repeatable)",
	"limit": "limit of a run, its default and the most a call may ask for: timeout=60s (600s at most), cpu " +
		"of one process (2s more than timeout), memory=512MiB, pids=64, files=256 open in one process, " +
		"file=64MiB of one file, scratch=64MiB in inodes=16384 files, output=1MiB of each stream; and the " +
		"number of runs at the same time, the rest wait: concurrent (4 for each processor) (repeatable)",
	"records": "limit of records: free=64MiB stays free on the disk; of one principal, with these defaults " +
		"where there are several: bytes=8GiB, sessions=20000, outputs=4GiB; and what is deleted by itself, " +
		"default nothing: sessions not written for age=90d, and the oldest above total=20GiB (repeatable)",
}

// groupHelp describes the mappings of the file that have options in them.
var groupHelp = map[string]string{
	"scan":        "how roots are read",
	"scan.limits": "limits of the scan of one root",
	"skills":      "choices for single skills",
	"catalog":     "how skills are named to models",
	"policy":      "what is decided and on which evidence",
	"trust":       "whose signatures of installed skills count",
	"workspace":   "what scripts see at /workspace",
	"limits": "limits of a run, its defaults and the most a call or an entry may ask for, and of runs " +
		"at the same time",
	"principals": "principals of HTTP, by name",
	"sandbox":    "how scripts are isolated",
	"sessions":   "records of sessions",
	"sessions.limits": "how much is kept; whoever reaches a limit of a principal is answered records_full, " +
		"and others are served",
	"sessions.gc": "whole sessions that the server deletes by itself at its start and every hour, those " +
		"last written longest ago first, but none that is open; default none",
	"http":      "serving over HTTP",
	"http.auth": "who is let in",
	"cluster":   "several servers of the same sessions",
	"log":       "the log on stderr",
	"metrics":   "metrics for Prometheus",
}

// specs are roots as --skills-root takes them; in the file each may be an object.
type specs []string

// tierScripts are pairs TIER=deny; in the file they are a mapping.
type tierScripts []string

// table returns the options that say where skills come from.
func (r *RootOptions) table() []Option {
	l := &r.Limits
	limit := func(name string, value any, help string) Option {
		return Option{Key: "scan.limits." + name, Flag: "scan-limit", Part: name, Value: value, Help: help}
	}
	return under(SectionSkills, []Option{
		{Key: "roots", Flag: "skills-root", Value: &r.Specs, InFile: (*specs)(&r.Specs),
			Help: "directory or zip archive with skills: `DIR`, tier=DIR or tier:prefix=DIR; tier is " +
				skills.TierList() + ", " + skills.TierUser.String() + " by default (repeatable, earlier " +
				"wins)"},
		{Key: "scan.allow_roots", Flag: "allow-root", Value: &r.Allowed, Path: anyPath,
			Help: "`DIR` that links inside a skills root may lead to (repeatable)"},
		{Key: "scan.strict_roots", Flag: "strict-roots", Value: &r.Strict,
			Help: "fail if a given skills root is missing"},
		{Key: "scan.no_default_roots", Flag: "no-default-roots", Value: &r.NoDefaults,
			Help: "serve neither what is installed nor, without --skills-root, the conventional directories"},
		{Key: "scan.allow_shadow", Flag: "allow-shadow", Value: &r.AllowShadow,
			Help: "let a lower trust tier take the place of a higher one at the same path"},
		limit("depth", &l.Depth, "levels of directories below a root; default 8"),
		limit("directories", &l.Directories, "directories below a root; default 20000"),
		limit("files", &l.Files, "files of one skill; default 2000"),
		limit("bytes", &l.Bytes, "bytes of one skill; default 268435456"),
	})
}

// table returns the options that choose among skills.
func (o *SkillOptions) table() []Option {
	return under(SectionSkills, []Option{
		{Key: "skills.disabled", Flag: "disable-skill", Value: &o.Disabled,
			Help: "do not serve this `SKILL`: its path or name (repeatable)"},
		{Key: "skills.pinned", Flag: "pin-skill", Value: &o.Pinned,
			Help: "name this `SKILL` first where room is short: its path or name (repeatable)"},
		{Key: "skills.name_only", Flag: "name-only", Value: &o.NameOnly,
			Help: "show this `SKILL` without its description: its path or name (repeatable)"},
		{Key: "skills.validation", Flag: "validation", Value: &o.Validation,
			Words: []string{"lenient", "strict"}, Default: "lenient",
			Help: "which skills load: `WORD` is lenient, or strict for those that validate accepts"},
	})
}

// Table returns all options with their values in o, in the order of the file.
func (o *Options) Table() []Option {
	l, gc := &o.Records.Limits, &o.Records.GC
	record := func(name string, value any, help string) Option {
		_, part, _ := strings.Cut(name, ".")
		return Option{Key: "sessions." + name, Flag: "records", Part: part, Value: value, Help: help}
	}
	return slices.Concat(o.Roots.table(), under(SectionSkills, []Option{
		{Key: "skills.preload", Flag: "skill", Value: &o.Skills,
			Help: "load this `SKILL` at the start of the session (repeatable, order kept)"},
		{Flag: "client", Value: &o.Roots.Client, Words: clients.WithSkills(),
			Help: "`NAME` of the client that starts this server; of the conventional directories, " +
				"those from " +
				"which it loads skills itself are left out: " + strings.Join(clients.WithSkills(), ", ")},
	}), o.Choice.table(), under(SectionSkills, []Option{
		{Key: "catalog.disabled", Flag: "no-skill-catalog", Value: &o.NoCatalog,
			Help: "name no skills in descriptions; explicit names still load"},
		{Key: "catalog.search", Flag: "search", Value: &o.Search, Words: []string{"auto", "always"},
			Default: "auto", Help: "`WHEN` to offer search_skills: auto, if the catalog is cut, or always"},
		{Key: "catalog.budget", Flag: "catalog-budget", Value: &o.CatalogBudget, Default: "24KiB",
			Help: "`SIZE` of the catalog in characters; above it names stay and descriptions are cut"},
		{Key: "catalog.order", Flag: "catalog-order", Value: &o.CatalogOrder, Words: []string{"used", "name"},
			Default: "used", Help: "which skills keep their descriptions in a catalog that is cut, after " +
				"pinned ones: `ORDER` is used, those loaded most here, or name, which counts no loads"},
		{Key: "watch", Flag: "watch", Value: &o.Watch, Default: "true",
			Help: "follow changes of the skills on disk"},
		{Flag: "no-watch", Value: &o.NoWatch, Help: "serve the skills as they are at start"},
	}), o.policyTable(), o.runTable(), []Option{
		{Key: "state", Flag: "state", Value: &o.State, Path: anyPath,
			Help: "`DIR` for installed skills, stored trees and records (default $XDG_STATE_HOME/skillsd, " +
				"else ~/.local/state/skillsd)"},
		{Key: "artifacts", Flag: "artifact-root", Value: &o.Artifacts, Path: anyPath,
			Help: "`DIR` for session records (default <state>/sessions)"},
	}, under(SectionRecords, []Option{
		{Key: "sessions.resume", Flag: "resume", Value: &o.Resume.Session,
			Help: "stdio: continue this `SESSION`, or latest; what it loaded is active again if it is " +
				"still the same"},
		{Key: "sessions.resume_drift", Flag: "resume-drift", Value: &o.Resume.Drift,
			Words: []string{"fail", "reload"}, Default: "fail",
			Help: "if a skill of the resumed session has changed: `WORD` is fail, or reload it as it is"},
		{Key: "sessions.sign_key", Flag: "sign-key", Value: &o.Records.SignKey, Path: anyPath,
			Help: "`FILE` with the key that signs the last event of each session, as skillsd session " +
				"keygen makes it"},
		{Key: "sessions.run_manifest", Flag: "run-manifest", Value: &o.Manifest, Path: anyPath,
			Help: "`FILE` that says which run this server belongs to; its enforcement mode and prompt slot " +
				"count if nothing else says them"},
		{Key: "sessions.keep_shown", Flag: "keep-shown", Value: &o.Records.KeepShown, Default: "true",
			Help: "keep what the model is shown, for session replay"},
		record("limits.free", &l.Free, "stays free on the disk: with less nothing new begins; default 64MiB"),
		record("limits.bytes", &l.Bytes, "all records of one principal; default 8GiB where there "+
			"are several"),
		record("limits.sessions", &l.Sessions,
			"sessions kept of one principal; default 20000 where there are several"),
		record("limits.outputs", &l.Outputs,
			"kept outputs of one principal's scripts; default 4GiB where there are several"),
		record("gc.age", &gc.Age, "delete sessions not written for so long, such as 90d"),
		record("gc.total", &gc.Total, "delete sessions unused longest while all take more, such as 20GiB"),
	}), o.httpTable(), o.Cluster.table(), under(SectionRecords, []Option{
		{Key: "log.level", Flag: "log-level", Value: &o.LogLevel,
			Words: []string{"debug", "info", "warn", "error"}, Default: "info",
			Help: "`LEVEL`: debug, info, warn or error"},
		{Key: "log.format", Flag: "log-format", Value: &o.LogFormat, Words: []string{"auto", "text", "json"},
			Default: "auto", Help: "`FORMAT`: auto, text or json"},
		{Key: "metrics.addr", Flag: "metrics", Value: &o.Metrics.Addr,
			Help: "serve Prometheus metrics at http://`ADDR`/metrics, such as 127.0.0.1:9464; they name " +
				"skills"},
		{Key: "metrics.insecure", Flag: "metrics-insecure", Value: &o.Metrics.Insecure,
			Help: "let --metrics be reached from other machines, without authentication"},
	}), o.pageTable())
}

// pageTable returns the options of the operator's page.
func (o *Options) pageTable() []Option {
	p := &o.Page
	return under(SectionHTTP, []Option{
		{Key: "page.addr", Flag: "page", Value: &p.Addr,
			Help: "with --http or --unix, serve the operator's page at http://`ADDR`/, such as " +
				"127.0.0.1:9465; the log has a link that opens it once"},
		{Key: "page.client", Flag: "page-client", Value: &p.Client,
			Help: "let users into the page by their login at --auth-issuer instead, as its client of this " +
				"`ID` (OpenID Connect)"},
		{Key: "page.secret_file", Flag: "page-secret-file", Value: &p.Secret, Path: anyPath,
			Help: "`FILE` with the secret of that client; without one it is a public client"},
		{Key: "page.url", Flag: "page-url", Value: &p.URL,
			Help: "`URL` of the page as browsers know it, such as https://page.example.com (default " +
				"http://ADDR); the issuer sends browsers to its /login/callback"},
		{Key: "page.scopes", Flag: "page-scope", Value: &p.Scopes,
			Help: "`SCOPE` that logins ask for besides openid (repeatable)"},
		{Key: "page.claim", Flag: "page-claim", Value: &p.Claim, Default: "roles",
			Help: "`CLAIM` of ID tokens that names roles: one, or a list"},
		{Key: "page.operator", Flag: "page-operator", Value: &p.Operator, Default: "page-operator",
			Help: "`ROLE` of those who see everything"},
		{Key: "page.viewer", Flag: "page-viewer", Value: &p.Viewer, Default: "page-viewer",
			Help: "`ROLE` of those who see the sessions of their own principal"},
	})
}

// policyTable returns the options that decide what may run.
func (o *Options) policyTable() []Option {
	return under(SectionPolicy, []Option{
		{Key: "allow_tools", Flag: "allow-tool", Value: &o.AllowTools, Words: []string{mcpserver.ToolRun},
			Help: "offer a `TOOL` that is off by default: run_skill_script"},
		{Key: "allow", Flag: "allow-skill-script", Value: &o.AllowScripts, InFile: &o.Allow,
			Help: "allow exactly this `SCRIPT` (repeatable): " + AllowForm},
		{Key: "secrets", InFile: &o.Secrets,
			Help: "where the secrets come from that entries of allow give to their scripts, by the name of " +
				"the variable the script sees; the values are not in this file"},
		{Key: "trust.required", InFile: &o.Required,
			Help: "beginnings of sources from which skills are installed, updated and synchronized only " +
				"if one of the signers signed them; all for every source"},
		{Key: "trust.signers", InFile: &o.Signers, Help: "whose signatures count, by a name"},
		{Key: "trust.root", InFile: &o.TrustedRoot, Path: anyPath,
			Help: "trusted_root.json of Sigstore, by which the identities of signers are verified; it is " +
				"never fetched"},
		{Key: "trust.verifier", InFile: &o.Verifier, Path: anyPath,
			Help: "program that verifies identities; default skillsd-sigstore in the directory of " +
				"skillsd, else in PATH"},
		{Key: "profiles", InFile: &o.Profiles, Help: "profiles, by name; each only narrows"},
		{Key: "principals", Flag: "auth-evidence", Section: SectionHTTP, Value: &o.HTTP.Evidence,
			InFile: &o.Principals,
			Help:   "believe this `PRINCIPAL` about prompt slots and modes (repeatable)"},
		{Key: "policy.mode", Flag: "cfc-enforcement-mode", Value: &o.Mode,
			Words:   []string{"disabled", "observe", "enforce-explicit", "enforce-strict"},
			Default: "enforce-explicit",
			Help:    "`MODE` of enforcement: disabled, observe, enforce-explicit or enforce-strict"},
		{Key: "policy.prompt_slot_role", Flag: "prompt-slot-role", Value: &o.Role,
			Words: []string{"direct-command", "context", "quote"},
			Help: "`ROLE` that is the evidence for every call of this process: direct-command, context or " +
				"quote"},
		{Key: "policy.release", Flag: "release", Value: &o.Release, Words: releaseWords(), Default: "none",
			Help: "`RELEASE` of output for runs that could reveal more than the skill's own bytes: none, " +
				"observed or opaque"},
		{Key: "policy.allowed_tools", Flag: "allowed-tools", Value: &o.AllowedTools,
			Words: []string{"enforce", "advisory"}, Default: "enforce",
			Help: "`HOW` a skill's allowed-tools narrows its scripts: enforce or advisory"},
		{Key: "policy.tier_scripts", Flag: "tier-scripts", Value: &o.ClosedTiers,
			InFile: (*tierScripts)(&o.ClosedTiers), Names: skills.TierNames(), Words: []string{"deny"},
			Help: "close a trust tier to scripts: `TIER=deny` (repeatable)"},
		{Key: "policy.drift", Flag: "drift", Value: &o.Drift, Words: []string{"report", "refuse"},
			Default: "report",
			Help: "for a file that changed since its skill was loaded: `WORD` is report, with both " +
				"digests, or refuse; a script is always refused"},
		{Key: "policy.profile", Flag: "profile", Value: &o.Profile,
			Help: "narrow every session to this `PROFILE` of the configuration"},
		{Key: "policy.execution_target", Flag: "skill-script-execution-target", Value: &o.Target,
			Words: targetWords(), Default: "sandbox",
			Help: "`TARGET`: sandbox, or host: scripts whose entry says host run on the machine itself"},
	})
}

// runTable returns the options of running scripts.
func (o *Options) runTable() []Option {
	l := &o.Limits
	limit := func(name string, value any, least, most int64, help string) Option {
		return Option{Key: "limits." + name, Flag: "limit", Part: name, Value: value, least: least,
			most: most,
			Help: help}
	}
	const second = int64(time.Second)
	return under(SectionRuns, []Option{
		{Key: "workspace.dir", Flag: "workspace", Value: &o.Workspace, Path: anyPath,
			Help: "`DIR` that scripts see at /workspace: DIR[:ro|staged|rw], default ro"},
		{Key: "workspace.from_client", Flag: "workspace-from-client", Value: &o.FromClient,
			Help: "stdio: let scripts see the directory the client works in at /workspace instead, in the " +
				"mode of --workspace, which may be a mode alone (:staged); ro without it. It is the one " +
				"that the client names, else the one in which it started the server, unless that is a " +
				"home"},
		{Key: "workspace.owner", Flag: "workspace-owner", Value: &o.Owner,
			Help: "`USER`, a name or a number, whose rights scripts of a server of root have in the " +
				"workspace, and who owns there what they make; default nobody"},
		limit("timeout", (*Duration)(&l.Timeout), second, int64(policy.MaxTimeout),
			"wall clock; default 60s, 600s at most"),
		limit("cpu", (*Duration)(&l.CPU), second, 0,
			"processor time of one process; default 2s more than timeout"),
		// Nothing starts in less memory, and no interpreter with fewer descriptors.
		limit("memory", (*Size)(&l.Memory), 16<<20, 0, "of all processes together; default 512MiB"),
		limit("pids", &l.PIDs, 0, math.MaxInt32, "processes and threads; default 64"),
		limit("files", &l.Files, 32, math.MaxInt32, "descriptors open in one process; default 256"),
		limit("scratch", (*Size)(&l.Scratch), 0, 0,
			"/tmp, and the changes to a staged workspace; default 64MiB"),
		limit("inodes", &l.Inodes, 0, math.MaxInt32, "files and directories in the same; default 16384"),
		limit("file", (*Size)(&l.File), 0, 0, "one file written; default 64MiB"),
		limit("output", (*Size)(&l.Output), 0, 0, "kept of each stream; default 1MiB"),
		limit("concurrent", &l.Concurrent, 0, session.MaxConcurrent,
			"runs at the same time, the rest wait; default 4 for each processor, 1024 at most"),
		{Key: "sandbox.backend", Flag: "sandbox", Value: &o.Sandbox, Words: detect.Names(), Default: "auto",
			Help: "sandbox `BACKEND`: " + detect.Usage()},
		{Key: "interpreters", InFile: &o.Interpreters, Names: interpreterKeys(), Path: anyPath,
			Help: "programs that run scripts, by name, such as python: ~/venvs/office/bin/python of a " +
				"virtual environment; default the first of each on PATH"},
		{Key: "sandbox.uids", Flag: "sandbox-uids", Value: &o.SandboxUIDs,
			Help: "`RANGE` of users, FIRST-LAST: each run of a server of root has one of them to itself, " +
				"and nothing else may have them; default 2010000000-2010065535"},
		{Key: "environments", InFile: &o.Environments,
			Help: "packages that scripts find, by a name that entries of allow give; `skillsd " +
				"env` makes them"},
		{Key: "index", InFile: &o.Index, Names: []string{"python", "node"},
			Help: "where packages of environments come from: python, the URL of a simple index, default " +
				making.PyPI + "; node, the URL of a registry of npm, default " + making.NPM},
	})
}

// InterpreterKey returns what the configuration calls the interpreter of a runtime.
func InterpreterKey(runtime script.Runtime) string { return strings.TrimSuffix(string(runtime), "3") }

func interpreterKeys() (keys []string) {
	for _, in := range script.Interpreters() {
		keys = append(keys, InterpreterKey(in.Runtime))
	}
	return keys
}

// Register adds the flags that say where a cluster is, for a command that is no server of it, and its key if
// the command needs that. usage is that of --cluster.
func (c *Cluster) Register(flags *pflag.FlagSet, usage string, key bool) {
	register(flags, slices.DeleteFunc(c.table(), func(o Option) bool {
		ofServers := []string{"cluster-generation", "pool", "node", "node-addr"}
		return slices.Contains(ofServers, o.Flag) || o.Flag == "cluster-key" && !key
	}))
	flags.Lookup("cluster").Usage = usage
}

// ClusterFlag returns a flag about a cluster that was given, or "".
func (c *Configuration) ClusterFlag() string {
	for _, option := range new(Cluster).table() {
		if c.OriginOf(option.Flag).Kind == FromFlag {
			return option.Flag
		}
	}
	return ""
}

// table returns the options of a cluster.
func (c *Cluster) table() []Option {
	return under(SectionCluster, []Option{
		{Key: "cluster.servers", Flag: "cluster", Value: &c.Servers,
			Help: "with --http or --unix, be one of several servers of the same sessions, with " +
				"records in the NATS cluster of this `URL`, such as tls://nats-1:4222 (repeatable); see " +
				"skillsd help cluster"},
		{Key: "cluster.key", Flag: "cluster-key", Value: &c.Key, Path: anyPath,
			Help: "`FILE` with the key that all servers of the cluster have in common, at least 32 " +
				"characters"},
		{Key: "cluster.creds", Flag: "cluster-creds", Value: &c.Creds, Path: anyPath,
			Help: "`FILE` with the credentials of a user of NATS"},
		{Key: "cluster.ca", Flag: "cluster-ca", Value: &c.CA, Path: anyPath,
			Help: "`FILE` with the certificates that sign those of the cluster; TLS is then required"},
		{Key: "cluster.cert", Flag: "cluster-cert", Value: &c.Cert, Path: anyPath,
			Help: "`FILE` with the certificate by which the cluster knows this server"},
		{Key: "cluster.cert_key", Flag: "cluster-cert-key", Value: &c.CertKey, Path: anyPath,
			Help: "key `FILE` of that certificate"},
		{Key: "cluster.prefix", Flag: "cluster-prefix", Value: &c.Prefix, Default: "skillsd",
			Help: "`NAME` that begins those of streams: teams with different ones have " +
				"nothing in common"},
		{Key: "cluster.replicas", Flag: "cluster-replicas", Value: &c.Replicas,
			Default: "3",
			Help: "`N` servers of NATS each have all records: 3, 5, or 1, which loses records with " +
				"its server"},
		{Key: "cluster.generation", Flag: "cluster-generation", Value: &c.Generation, Default: "1",
			Help: "`N` of the policy and the skills here: a server of another N, or with other ones of the " +
				"same, is refused; servers of a higher N replace those of a lower one"},
		{Key: "cluster.pool", Flag: "pool", Value: &c.Pool,
			Help: "run no script here: the workers of the pool `NAME` do, see skillsd worker --help"},
		{Key: "cluster.node", Flag: "node", Value: &c.Node,
			Help: "`NAME` of this server in records; default that of the machine"},
		{Key: "cluster.addr", Flag: "node-addr", Value: &c.Addr,
			Help: "`ADDR` at which this server takes requests that others pass on, such as " +
				"10.0.0.7:9470; default a port on loopback, if the cluster is there"},
	})
}

// httpTable returns the options of serving over HTTP.
func (o *Options) httpTable() []Option {
	h := &o.HTTP
	return under(SectionHTTP, []Option{
		{Key: "http.addr", Flag: "http", Value: &h.Addr,
			Help: "serve over HTTP at `ADDR`, such as 127.0.0.1:8080, instead of stdio"},
		{Key: "http.unix", Flag: "unix", Value: &h.Unix, Path: anyPath,
			Help: "serve over HTTP on a Unix socket of this `PATH`, instead of stdio; only its owner can " +
				"connect"},
		{Key: "http.path", Flag: "http-path", Value: &h.Path, Default: "/mcp",
			Help: "`PATH` of the endpoint"},
		{Key: "http.activation", Flag: "http-activation", Value: &h.Activation,
			Words: []string{"session", "handle"}, Default: "session",
			Help: "`WHAT` shows that a call belongs to the conversation that loaded a skill: session, and " +
				"for clients that name none what their principal loaded, while it has one conversation; " +
				"or for those clients only the handle that load_skill returns"},
		{Key: "http.allowed_hosts", Flag: "allowed-host", Value: &h.Hosts,
			Help: "answer to this Host besides localhost and the address itself: `NAME` or NAME:PORT " +
				"(repeatable)"},
		{Key: "http.allowed_origins", Flag: "allowed-origin", Value: &h.Origins,
			Help: "accept requests of web pages of this `ORIGIN` besides those of --public-url and, with " +
				"tokens, localhost: " +
				"https://NAME[:PORT] (repeatable)"},
		{Key: "http.public_url", Flag: "public-url", Value: &h.PublicURL,
			Help: "`URL` of the endpoint as clients know it, such as https://skills.example.com/mcp"},
		{Key: "http.tls_cert", Flag: "tls-cert", Value: &h.Cert, Path: anyPath,
			Help: "certificate `FILE`; with --tls-key, serve over TLS; a renewed one is used without a " +
				"restart"},
		{Key: "http.tls_key", Flag: "tls-key", Value: &h.Key, Path: anyPath,
			Help: "key `FILE` of the certificate"},
		{Key: "http.rate_limit", Flag: "rate-limit", Value: &h.Rate, Default: "-1",
			Help: "`N` requests a second of each principal, 0 for no limit (default 100 with " +
				"authentication, else 1000 of all together)"},
		{Key: "http.insecure_no_auth", Flag: "insecure-no-auth", Value: &h.NoAuth,
			Help: "ask for no token: let in everyone who can reach the address"},
		{Key: "http.shared_records", Flag: "shared-records", Value: &h.SharedRecords,
			Help: "start although another server over HTTP has these records: each knows only its own " +
				"approvals and handles"},
		{Key: "http.auth.token_file", Flag: "auth-token-file", Value: &h.TokenFile, Path: anyPath,
			Help: "let in bearers of tokens whose hashes are in this `FILE`, in lines PRINCIPAL: SHA256-HEX"},
		{Key: "http.auth.issuer", Flag: "auth-issuer", Value: &h.Issuer,
			Help: "let in bearers of JSON Web Tokens of the issuer at this `URL`"},
		{Key: "http.auth.audiences", Flag: "auth-audience", Value: &h.Audiences,
			Help: "`AUDIENCE` such a token must name (repeatable; default: the public URL)"},
		{Key: "http.auth.jwks", Flag: "auth-jwks", Value: &h.Keys, Path: pathOrURL,
			Help: "`URL` or file of the issuer's keys (default: the one its discovery document names)"},
		{Key: "http.auth.algorithms", Flag: "auth-algorithm", Value: &h.Algorithms,
			Help: "signature `ALGORITHM` to accept (repeatable; default RS256, ES256 and EdDSA)"},
		{Key: "http.auth.scopes", Flag: "auth-scope", Value: &h.Scopes,
			Help: "`SCOPE` such a token must grant (repeatable)"},
	})
}
