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
	"github.com/skillsd/skillsd/skills/catalog"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"

	"github.com/spf13/pflag"
)

// Option is one option: its names on the command line, in the environment and in the configuration file, its
// possible values, and the variable that holds its value. Help, completion, `config show` and the JSON Schema
// are generated from it.
type Option struct {
	Key     string // in the file, with dots; empty for an option of the command line only
	Flag    string // without hyphens; empty for an option of the file only
	Part    string // the name in a flag of NAME=VALUE pairs; else empty
	Default string // only without a Part: the default of a part is set where its value is read
	Section Section
	Help    string // in the form of pflag: the name of the value is in backquotes

	Words    []string // the valid values; empty for any
	Names    []string // the valid names of a mapping; empty for any
	Path     PathKind
	Required bool // in its object

	// Value points to the value; its type determines the valid values.
	Value any
	// InFile points to the value of the file, if the file can express more than the flag, or in another form.
	InFile any

	least, most int64 // of a number; 0 for no bound
}

// inFile returns the pointer to the value for the file.
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
	SectionPolicy  Section = "What may run"
	SectionRuns    Section = "How scripts run"
	SectionHTTP    Section = "HTTP"
	SectionCluster Section = "Cluster"
	SectionRecords Section = "Sessions, log and metrics"
)

// Sections returns all sections, in the order of the help.
func Sections() []Section {
	return []Section{SectionSkills, SectionPolicy, SectionRuns, SectionHTTP, SectionCluster, SectionRecords}
}

// PathKind is whether a value is a path. In the file a path is relative to the directory of the file.
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

// under sets the section of options without one.
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

// flagHelp describes the flags of NAME=VALUE pairs; each part has its own help.
var flagHelp = map[string]string{
	"scan-limit": "limit of the search of one directory of skills: depth=8, directories=20000, files=2000 " +
		"in one skill, bytes=268435456 of one skill (repeatable)",
	"limit": "limit of a run, both its default and the maximum a call may request: timeout=60s (600s at " +
		"most), cpu of one process (2s more than timeout), memory=512MiB, pids=64, files=256 open in one " +
		"process, file=64MiB of one file, scratch=64MiB in inodes=16384 files, output=1MiB of each stream; " +
		"and the number of concurrent runs, others wait: concurrent (4 per processor) (repeatable)",
	"records": "limit of session logs: free=64MiB to leave on the disk; per user, with these defaults if " +
		"there are several: bytes=8GiB, sessions=20000, outputs=4GiB; and automatic deletion, off by " +
		"default: of sessions not written for age=90d, and of the oldest above total=20GiB (repeatable)",
}

// groupHelp describes the mappings of the file that contain options.
var groupHelp = map[string]string{
	"scan":        "how directories of skills are searched",
	"scan.limits": "limits of the search of one directory of skills",
	"skills":      "choices for single skills",
	"catalog":     "how skills are listed to models",
	"policy":      "what may run, and when you are asked",
	"trust":       "trusted signers of installed skills",
	"workspace":   "the project directory that scripts see at /workspace",
	"limits": "limits of a run, both defaults and the maximum that a call or an entry may request, and of " +
		"concurrent runs",
	"principals": "users of a server over HTTP, by name",
	"sandbox":    "how scripts are isolated",
	"sessions":   "session logs",
	"sessions.limits": "how much is kept; a user at one of these limits gets the error records_full, " +
		"others are not affected",
	"sessions.gc": "automatic deletion of whole sessions, at startup and every hour, oldest first; open " +
		"sessions are never deleted; off by default",
	"http":      "serving over HTTP",
	"http.auth": "how clients authenticate",
	"cluster":   "several servers with the same sessions",
	"log":       "the log on stderr",
	"metrics":   "metrics for Prometheus",
}

// specs are roots in the form of --skills-root; in the file each may be an object.
type specs []string

// tierScripts are pairs TIER=deny; in the file they form a mapping.
type tierScripts []string

// table returns the options for the sources of skills.
func (r *RootOptions) table() []Option {
	l := &r.Limits
	limit := func(name string, value any, help string) Option {
		return Option{Key: "scan.limits." + name, Flag: "scan-limit", Part: name, Value: value, Help: help}
	}
	return under(SectionSkills, []Option{
		{Key: "roots", Flag: "skills-root", Value: &r.Specs, InFile: (*specs)(&r.Specs),
			Help: "directory or zip archive with skills: `DIR`, TRUST=DIR or TRUST:PREFIX=DIR; TRUST is " +
				"how far they are trusted: " + skills.TierList() + ", " + skills.TierUser.String() +
				" by default (repeatable, earlier wins)"},
		{Key: "scan.allow_roots", Flag: "allow-root", Value: &r.Allowed, Path: anyPath,
			Help: "`DIR` that links in directories of skills may lead to (repeatable)"},
		{Key: "scan.strict_roots", Flag: "strict-roots", Value: &r.Strict,
			Help: "fail if a given directory of skills is missing"},
		{Key: "scan.no_default_roots", Flag: "no-default-roots", Value: &r.NoDefaults,
			Help: "serve neither installed skills nor, without --skills-root, the usual directories"},
		{Key: "scan.allow_shadow", Flag: "allow-shadow", Value: &r.AllowShadow,
			Help: "let a less trusted skill replace a more trusted one at the same path"},
		limit("depth", &l.Depth, "levels of directories below it; default 8"),
		limit("directories", &l.Directories, "directories below it; default 20000"),
		limit("files", &l.Files, "files of one skill; default 2000"),
		limit("bytes", &l.Bytes, "bytes of one skill; default 268435456"),
	})
}

// table returns the options for single skills.
func (o *SkillOptions) table() []Option {
	return under(SectionSkills, []Option{
		{Key: "skills.disabled", Flag: "disable-skill", Value: &o.Disabled,
			Help: "do not serve this `SKILL`: its path or name (repeatable)"},
		{Key: "skills.pinned", Flag: "pin-skill", Value: &o.Pinned,
			Help: "list this `SKILL` first if the list is cut: its path or name (repeatable)"},
		{Key: "skills.name_only", Flag: "name-only", Value: &o.NameOnly,
			Help: "show this `SKILL` without its description: its path or name (repeatable)"},
		{Key: "skills.validation", Flag: "validation", Value: &o.Validation,
			Words: []string{"lenient", "strict"}, Default: "lenient",
			Help: "which skills load: `WORD` is lenient, or strict for only those that skillsd validate " +
				"accepts"},
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
			Help: "`NAME` of the client that starts this server; usual directories from which it " +
				"loads skills itself are left out: " + strings.Join(clients.WithSkills(), ", ")},
	}), o.Choice.table(), under(SectionSkills, []Option{
		{Key: "catalog.disabled", Flag: "no-skill-catalog", Value: &o.NoCatalog,
			Help: "list no skills in the descriptions of tools; skills still load by name"},
		{Key: "catalog.search", Flag: "search", Value: &o.Search, Words: []string{"auto", "always"},
			Default: "auto",
			Help:    "`WHEN` to offer search_skills: auto (if the list of skills is cut) or always"},
		{Key: "catalog.budget", Flag: "catalog-budget", Value: &o.CatalogBudget,
			Default: Size(catalog.DefaultBudget).String(),
			Help: "`SIZE` of the list of skills in characters; above it descriptions are cut and names " +
				"stay"},
		{Key: "catalog.order", Flag: "catalog-order", Value: &o.CatalogOrder,
			Words: []string{OrderUsed, OrderName}, Default: OrderUsed,
			Help: "which descriptions stay when the list of skills is cut: `ORDER` is used (most " +
				"loaded) or name (alphabetical)"},
		{Key: "watch", Flag: "watch", Value: &o.Watch, Default: "true",
			Help: "follow changes of the skills on disk"},
		{Flag: "no-watch", Value: &o.NoWatch, Help: "serve the skills as they are at startup"},
	}), o.policyTable(), o.runTable(), stateTable(&o.State, &o.Artifacts), under(SectionRecords, []Option{
		{Key: "sessions.resume", Flag: "resume", Value: &o.Resume.Session,
			Help: "stdio: continue this `SESSION`, or latest; its skills are active again if they have " +
				"not changed"},
		{Key: "sessions.resume_drift", Flag: "resume-drift", Value: &o.Resume.Drift,
			Words: []string{"fail", "reload"}, Default: "fail",
			Help: "if a skill of the resumed session has changed: `WORD` is fail, or reload to load the " +
				"new version"},
		{Key: "sessions.sign_key", Flag: "sign-key", Value: &o.Records.SignKey, Path: anyPath,
			Help: "`FILE` with the key that signs the last event of each session, made by skillsd session " +
				"keygen"},
		{Key: "sessions.run_manifest", Flag: "run-manifest", Value: &o.Manifest, Path: anyPath,
			Help: "`FILE` that describes the run this server belongs to; its enforcement mode and prompt " +
				"slot apply if they are set nowhere else"},
		{Key: "sessions.keep_shown", Flag: "keep-shown", Value: &o.Records.KeepShown, Default: "true",
			Help: "keep the text shown to the model, for skillsd session replay"},
		record("limits.free", &l.Free,
			"free space to leave on the disk: with less, nothing new starts; default 64MiB"),
		record("limits.bytes", &l.Bytes,
			"session logs of one user; default 8GiB with several users"),
		record("limits.sessions", &l.Sessions,
			"sessions kept per user; default 20000 with several users"),
		record("limits.outputs", &l.Outputs,
			"kept outputs of one user's scripts; default 4GiB with several users"),
		record("gc.age", &gc.Age, "delete sessions not written for this long, such as 90d"),
		record("gc.total", &gc.Total,
			"delete the sessions unused longest while all together take more, such as 20GiB"),
	}), o.httpTable(), o.Cluster.table(), under(SectionRecords, []Option{
		{Key: "log.level", Flag: "log-level", Value: &o.LogLevel,
			Words: []string{"debug", "info", "warn", "error"}, Default: "info",
			Help: "`LEVEL`: debug, info, warn or error"},
		{Key: "log.format", Flag: "log-format", Value: &o.LogFormat, Words: []string{"auto", "text", "json"},
			Default: "auto", Help: "`FORMAT`: auto, text or json"},
		{Key: "metrics.addr", Flag: "metrics", Value: &o.Metrics.Addr,
			Help: "serve Prometheus metrics at http://`ADDR`/metrics, such as 127.0.0.1:9464; they " +
				"include names of skills"},
		{Key: "metrics.insecure", Flag: "metrics-insecure", Value: &o.Metrics.Insecure,
			Help: "let other machines read --metrics, without authentication"},
	}), o.pageTable())
}

// stateTable returns the options that every command has.
func stateTable(state, artifacts *string) []Option {
	return []Option{
		{Key: "state", Flag: "state", Value: state, Path: anyPath,
			Help: "`DIR` for installed skills and session logs (default $XDG_STATE_HOME/skillsd, else " +
				"~/.local/state/skillsd)"},
		{Key: "artifacts", Flag: "artifact-root", Value: artifacts, Path: anyPath,
			Help: "`DIR` for session logs (default <state>/sessions)"},
	}
}

// pageTable returns the options of the operator's page.
func (o *Options) pageTable() []Option {
	p := &o.Page
	return under(SectionHTTP, []Option{
		{Key: "page.addr", Flag: "page", Value: &p.Addr,
			Help: "with --http or --unix, serve the page at http://`ADDR`/, such as 127.0.0.1:9465; " +
				"the log has a link that opens it once"},
		{Key: "page.client", Flag: "page-client", Value: &p.Client,
			Help: "`ID` of the page as an OpenID Connect client of --auth-issuer; users then log in " +
				"there, instead of by the link"},
		{Key: "page.secret_file", Flag: "page-secret-file", Value: &p.Secret, Path: anyPath,
			Help: "`FILE` with the secret of that client; without it the client is public"},
		{Key: "page.url", Flag: "page-url", Value: &p.URL,
			Help: "public `URL` of the page, such as https://page.example.com (default http://ADDR); the " +
				"issuer redirects browsers to its /login/callback"},
		{Key: "page.scopes", Flag: "page-scope", Value: &p.Scopes,
			Help: "`SCOPE` that logins request besides openid (repeatable)"},
		{Key: "page.claim", Flag: "page-claim", Value: &p.Claim, Default: "roles",
			Help: "`CLAIM` of ID tokens with the user's roles: one, or a list"},
		{Key: "page.operator", Flag: "page-operator", Value: &p.Operator, Default: "page-operator",
			Help: "`ROLE` of users who see all sessions"},
		{Key: "page.viewer", Flag: "page-viewer", Value: &p.Viewer, Default: "page-viewer",
			Help: "`ROLE` of users who see their own sessions"},
	})
}

// policyTable returns the options for what may run.
func (o *Options) policyTable() []Option {
	return under(SectionPolicy, []Option{
		{Key: "allow_tools", Flag: "allow-tool", Value: &o.AllowTools, Words: []string{mcpserver.ToolRun},
			Help: "offer a `TOOL` that is off by default: run_skill_script"},
		{Key: "allow", Flag: "allow-skill-script", Value: &o.AllowScripts, InFile: &o.Allow,
			Help: "allow exactly this `SCRIPT` (repeatable): " + AllowForm},
		{Key: "secrets", InFile: &o.Secrets,
			Help: "sources of the secrets that entries of allow pass to their scripts, by the variable " +
				"that the script sees; the values are not in this file"},
		{Key: "trust.required", InFile: &o.Required,
			Help: "prefixes of sources whose skills are installed, updated and synchronized only with a " +
				"signature of one of the signers; all means every source"},
		{Key: "trust.signers", InFile: &o.Signers, Help: "trusted signers of installed skills, by name"},
		{Key: "trust.root", InFile: &o.TrustedRoot, Path: anyPath,
			Help: "trusted_root.json of Sigstore, used to verify the identities of signers; it is never " +
				"fetched"},
		{Key: "trust.verifier", InFile: &o.Verifier, Path: anyPath,
			Help: "program that verifies identities; default skillsd-sigstore in the directory of " +
				"skillsd, else in PATH"},
		{Key: "profiles", InFile: &o.Profiles, Help: "profiles, by name; a profile can only restrict"},
		{Key: "principals", Flag: "auth-evidence", Section: SectionHTTP, Value: &o.HTTP.Evidence,
			InFile: &o.Principals,
			Help: "accept the prompt slots and modes that this `PRINCIPAL`, a user of HTTP, sends " +
				"(repeatable); see skillsd help harness"},
		{Key: "policy.mode", Flag: "cfc-enforcement-mode", Value: &o.Mode,
			Words:   []string{"disabled", "observe", "enforce-explicit", "enforce-strict"},
			Default: "enforce-explicit",
			Help:    "`MODE` of enforcement: disabled, observe, enforce-explicit or enforce-strict"},
		{Key: "policy.prompt_slot_role", Flag: "prompt-slot-role", Value: &o.Role,
			Words: []string{"direct-command", "context", "quote"},
			Help: "whose words all calls of this process are: `ROLE` is direct-command " +
				"(yours), context or quote"},
		{Key: "policy.release", Flag: "release", Value: &o.Release, Words: releaseWords(), Default: "none",
			Help: "output that a model sees of a run with your project, a secret or a network: " +
				"`RELEASE` is none, observed (all of it) or opaque (whether it ended with 0)"},
		{Key: "policy.allowed_tools", Flag: "allowed-tools", Value: &o.AllowedTools,
			Words: []string{"enforce", "advisory"}, Default: "enforce",
			Help: "`HOW` the allowed-tools of a skill restrict its scripts: enforce or advisory"},
		{Key: "policy.tier_scripts", Flag: "tier-scripts", Value: &o.ClosedTiers,
			InFile: (*tierScripts)(&o.ClosedTiers), Names: skills.TierNames(), Words: []string{"deny"},
			Help: "refuse all scripts of skills that are trusted this far: `TIER=deny` (repeatable)"},
		{Key: "policy.drift", Flag: "drift", Value: &o.Drift, Words: []string{"report", "refuse"},
			Default: "report",
			Help: "for a file that changed after its skill was loaded: `WORD` is report (the answer has " +
				"both digests) or refuse; changed scripts are always refused"},
		{Key: "policy.profile", Flag: "profile", Value: &o.Profile,
			Help: "restrict every session to this `PROFILE` of the configuration"},
		{Key: "policy.execution_target", Flag: "skill-script-execution-target", Value: &o.Target,
			Words: targetWords(), Default: "sandbox",
			Help: "where scripts run: `TARGET` is sandbox, or host for scripts whose entry has target " +
				"host"},
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
			Help: "project directory that scripts see at /workspace: `DIR`[:ro|staged|rw], default ro"},
		{Key: "workspace.from_client", Flag: "workspace-from-client", Value: &o.FromClient,
			Help: "stdio: let scripts see the client's working directory at /workspace, in the mode of " +
				"--workspace (which may be a mode alone, such as :staged), else ro. It is the " +
				"directory that the client reports, else the one the server was started in, unless " +
				"that is a home directory"},
		{Key: "workspace.owner", Flag: "workspace-owner", Value: &o.Owner,
			Help: "`USER` (name or number) with whose rights scripts of a server of root access the " +
				"project directory, and who owns the files they create; default nobody"},
		limit("timeout", (*Duration)(&l.Timeout), second, int64(policy.MaxTimeout),
			"wall clock; default 60s, 600s at most"),
		limit("cpu", (*Duration)(&l.CPU), second, 0,
			"processor time of one process; default 2s more than timeout"),
		// No process starts with less memory, and no interpreter with fewer descriptors.
		limit("memory", (*Size)(&l.Memory), 16<<20, 0, "memory of all processes together; default 512MiB"),
		limit("pids", &l.PIDs, 0, math.MaxInt32, "processes and threads; default 64"),
		limit("files", &l.Files, 32, math.MaxInt32, "descriptors open in one process; default 256"),
		limit("scratch", (*Size)(&l.Scratch), 0, 0,
			"/tmp, and the changes to a staged project directory; default 64MiB"),
		limit("inodes", &l.Inodes, 0, math.MaxInt32, "files and directories in scratch; default 16384"),
		limit("file", (*Size)(&l.File), 0, 0, "size of one written file; default 64MiB"),
		limit("output", (*Size)(&l.Output), 0, 0, "bytes kept of each output stream; default 1MiB"),
		limit("concurrent", &l.Concurrent, 0, session.MaxConcurrent,
			"concurrent runs, others wait; default 4 per processor, 1024 at most"),
		{Key: "sandbox.backend", Flag: "sandbox", Value: &o.Sandbox, Words: detect.Names(), Default: "auto",
			Help: "sandbox `BACKEND`: " + detect.Usage()},
		{Key: "interpreters", InFile: &o.Interpreters, Names: interpreterKeys(), Path: anyPath,
			Help: "programs that run scripts, by name, such as python: ~/venvs/office/bin/python of a " +
				"virtual environment; default the first of each in PATH"},
		{Key: "sandbox.uids", Flag: "sandbox-uids", Value: &o.SandboxUIDs,
			Help: "`RANGE` of user IDs, FIRST-LAST: each run of a server of root gets one for itself, and " +
				"nothing else may use them; default 2010000000-2010065535"},
		{Key: "environments", InFile: &o.Environments,
			Help: "packages for scripts, by the name that entries of allow use; made by `skillsd env`"},
		{Key: "index", InFile: &o.Index, Names: []string{"python", "node"},
			Help: "sources of the packages of environments: python, the URL of a simple index, default " +
				making.PyPI + "; node, the URL of an npm registry, default " + making.NPM},
	})
}

// InterpreterKey returns the name of the interpreter of a runtime in the configuration.
func InterpreterKey(runtime script.Runtime) string { return strings.TrimSuffix(string(runtime), "3") }

func interpreterKeys() (keys []string) {
	for _, in := range script.Interpreters() {
		keys = append(keys, InterpreterKey(in.Runtime))
	}
	return keys
}

// Register adds the flags that locate a cluster to a command that is not a server, and the flag of the
// cluster key if key is set. usage is the help of --cluster.
func (c *Cluster) Register(flags *pflag.FlagSet, usage string, key bool) {
	register(flags, slices.DeleteFunc(c.table(), func(o Option) bool {
		ofServers := []string{"cluster-generation", "pool", "node", "node-addr"}
		return slices.Contains(ofServers, o.Flag) || o.Flag == "cluster-key" && !key
	}))
	flags.Lookup("cluster").Usage = usage
}

// ClusterFlag returns the first flag about a cluster that was given, or "".
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
			Help: "with --http or --unix, be one of several servers of the same sessions, with session " +
				"logs in the NATS cluster at this `URL`, such as tls://nats-1:4222 (repeatable); see " +
				"skillsd help cluster"},
		{Key: "cluster.key", Flag: "cluster-key", Value: &c.Key, Path: anyPath,
			Help: "`FILE` with the key that all servers of the cluster share, at least 32 characters"},
		{Key: "cluster.creds", Flag: "cluster-creds", Value: &c.Creds, Path: anyPath,
			Help: "`FILE` with the credentials of a NATS user"},
		{Key: "cluster.ca", Flag: "cluster-ca", Value: &c.CA, Path: anyPath,
			Help: "`FILE` with the CA certificates of the NATS cluster; makes TLS required"},
		{Key: "cluster.cert", Flag: "cluster-cert", Value: &c.Cert, Path: anyPath,
			Help: "`FILE` with the client certificate for the NATS cluster"},
		{Key: "cluster.cert_key", Flag: "cluster-cert-key", Value: &c.CertKey, Path: anyPath,
			Help: "`FILE` with the key of that certificate"},
		{Key: "cluster.prefix", Flag: "cluster-prefix", Value: &c.Prefix, Default: "skillsd",
			Help: "`NAME` prefix of all streams; servers with different prefixes share nothing"},
		{Key: "cluster.replicas", Flag: "cluster-replicas", Value: &c.Replicas,
			Default: "3",
			Help: "keep all session logs on `N` NATS servers: 3, 5, or 1, which loses them if its " +
				"server is lost"},
		{Key: "cluster.generation", Flag: "cluster-generation", Value: &c.Generation, Default: "1",
			Help: "`N` of the policy and skills of this server: servers with a higher N replace those " +
				"with a lower one; with the same N, other policy or skills are refused"},
		{Key: "cluster.pool", Flag: "pool", Value: &c.Pool,
			Help: "run scripts on the workers of the pool `NAME` instead of here; see skillsd worker " +
				"--help"},
		{Key: "cluster.node", Flag: "node", Value: &c.Node,
			Help: "`NAME` of this server in session logs; default the name of the machine"},
		{Key: "cluster.addr", Flag: "node-addr", Value: &c.Addr,
			Help: "`ADDR` at which this server takes requests forwarded by other servers, such as " +
				"10.0.0.7:9470; default a port on loopback, if the NATS cluster is on loopback"},
	})
}

// httpTable returns the options of serving over HTTP.
func (o *Options) httpTable() []Option {
	h := &o.HTTP
	return under(SectionHTTP, []Option{
		{Key: "http.addr", Flag: "http", Value: &h.Addr,
			Help: "serve over HTTP at `ADDR`, such as 127.0.0.1:8080, instead of stdio"},
		{Key: "http.unix", Flag: "unix", Value: &h.Unix, Path: anyPath,
			Help: "serve over HTTP on a Unix socket at this `PATH`, instead of stdio; only its owner can " +
				"connect"},
		{Key: "http.path", Flag: "http-path", Value: &h.Path, Default: "/mcp",
			Help: "`PATH` of the endpoint"},
		{Key: "http.activation", Flag: "http-activation", Value: &h.Activation,
			Words: []string{"session", "handle"}, Default: "session",
			Help: "`WHAT` links a call to the conversation that loaded a skill: session (by session " +
				"ID; without one, by the user while they have only one conversation) or handle " +
				"(without a session ID, only by the handle that load_skill returns)"},
		{Key: "http.allowed_hosts", Flag: "allowed-host", Value: &h.Hosts,
			Help: "accept this Host header besides localhost and the address itself: `NAME` or NAME:PORT " +
				"(repeatable)"},
		{Key: "http.allowed_origins", Flag: "allowed-origin", Value: &h.Origins,
			Help: "accept requests from web pages of this `ORIGIN` besides --public-url and, with tokens, " +
				"localhost: https://NAME[:PORT] (repeatable)"},
		{Key: "http.public_url", Flag: "public-url", Value: &h.PublicURL,
			Help: "public `URL` of the endpoint, such as https://skills.example.com/mcp"},
		{Key: "http.tls_cert", Flag: "tls-cert", Value: &h.Cert, Path: anyPath,
			Help: "certificate `FILE`; with --tls-key, serve over TLS; a renewed certificate is used " +
				"without a restart"},
		{Key: "http.tls_key", Flag: "tls-key", Value: &h.Key, Path: anyPath,
			Help: "`FILE` with the key of the certificate"},
		{Key: "http.rate_limit", Flag: "rate-limit", Value: &h.Rate, Default: "-1",
			Help: "`N` requests per second of each user, 0 for no limit (default 100 with " +
				"authentication, else 1000 for all clients together)"},
		{Key: "http.insecure_no_auth", Flag: "insecure-no-auth", Value: &h.NoAuth,
			Help: "require no token: accept every client that can reach the address"},
		{Key: "http.shared_records", Flag: "shared-records", Value: &h.SharedRecords,
			Help: "start even if another HTTP server uses these session logs: each server has its own " +
				"approvals and handles"},
		{Key: "http.auth.token_file", Flag: "auth-token-file", Value: &h.TokenFile, Path: anyPath,
			Help: "accept tokens whose hashes are in this `FILE`, in lines NAME: SHA256-HEX"},
		{Key: "http.auth.issuer", Flag: "auth-issuer", Value: &h.Issuer,
			Help: "accept JSON Web Tokens of the issuer at this `URL`"},
		{Key: "http.auth.audiences", Flag: "auth-audience", Value: &h.Audiences,
			Help: "`AUDIENCE` that a token must have (repeatable; default: the public URL)"},
		{Key: "http.auth.jwks", Flag: "auth-jwks", Value: &h.Keys, Path: pathOrURL,
			Help: "`URL` or file of the issuer's keys (default: the URL in its discovery document)"},
		{Key: "http.auth.algorithms", Flag: "auth-algorithm", Value: &h.Algorithms,
			Help: "signature `ALGORITHM` to accept (repeatable; default RS256, ES256 and EdDSA)"},
		{Key: "http.auth.scopes", Flag: "auth-scope", Value: &h.Scopes,
			Help: "`SCOPE` that a token must grant (repeatable)"},
	})
}
