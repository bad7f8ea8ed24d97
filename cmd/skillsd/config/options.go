package config

import (
	"cmp"
	"errors"
	"fmt"
	"os/user"
	"strconv"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills"
)

// Orders in which the descriptions of the catalogue stay when it is cut: the skills that were loaded most
// often, or by name.
const (
	OrderUsed = "used"
	OrderName = "name"
)

// Options are the values of the options of a server, merged from all sources. [Options.Table] has their
// names.
type Options struct {
	Roots   RootOptions
	Choice  SkillOptions
	HTTP    HTTP
	Metrics struct {
		Addr     string
		Insecure bool
	}
	Page    Page // the operator's page
	Cluster Cluster
	Records struct { // what is kept of sessions
		SignKey   string
		KeepShown bool
		Limits    RecordLimits
		GC        struct { // automatic deletion of whole sessions; zero disables it
			Age   Duration
			Total Size
		}
	}
	Resume   struct{ Session, Drift string } // of a recorded session
	Manifest string                          // the file that describes the run of the server

	Skills        []string
	NoCatalog     bool
	Search        string
	CatalogBudget Size
	CatalogOrder  string
	Watch         bool
	NoWatch       bool // flag only: the opposite of Watch
	AllowTools    []string
	AllowScripts  []string   // from the command line, the environment, or Allow
	Allow         []AllowKey // from the file
	Secrets       map[string]SecretKey
	Profiles      map[string]ProfileKey
	Required      []string                // from the file: prefixes of sources whose skills must be signed
	Signers       map[string]SignerKey    // from the file
	TrustedRoot   string                  // from the file: a trusted_root.json
	Verifier      string                  // from the file: the program that verifies identities
	Principals    map[string]PrincipalKey // from the file
	Mode          string
	Role          string
	Release       string
	AllowedTools  string
	ClosedTiers   []string // TIER=deny
	Drift         string
	Profile       string
	Target        string
	Workspace     string
	Owner         string // of the workspace
	FromClient    bool
	Limits        RunLimits
	Sandbox       string
	SandboxUIDs   string
	Interpreters  map[string]string         // from the file: paths, by InterpreterKey
	Environments  map[string]EnvironmentKey // from the file
	Index         map[string]string         // from the file: URLs of python and node
	State         string
	Artifacts     string
	LogLevel      string
	LogFormat     string
}

// HTTP are the options of serving over HTTP.
type HTTP struct {
	Addr string
	Unix string
	Path string
	// Activation selects how a call is matched to the conversation that loaded a skill.
	Activation string
	Hosts      []string
	Origins    []string
	Cert       string
	Key        string
	Rate       float64 // negative for the default
	NoAuth     bool
	// SharedRecords starts the server even if another server uses its records.
	SharedRecords bool

	TokenFile  string
	Issuer     string
	Audiences  []string
	Keys       string
	Algorithms []string
	Scopes     []string
	PublicURL  string
	Evidence   []string // names of principals
}

// Page are the options of the operator's page.
type Page struct {
	Addr     string
	Client   string // client id at the issuer of HTTP; empty for access by a link
	Secret   string // file
	URL      string
	Scopes   []string
	Claim    string
	Operator string // a role, as Viewer
	Viewer   string
}

// Cluster describes the cluster that holds the records, and the place of this server in it.
type Cluster struct {
	Servers           []string // URLs of NATS servers; empty: records are files
	Creds             string
	CA, Cert, CertKey string // for TLS to these servers
	Prefix            string
	Replicas          int
	Key               string // file
	Node, Addr        string // name of this server, and the address at which other servers reach it
	Generation        int    // of the configuration
	Pool              string // of workers; empty: scripts run on this server
}

// Enabled reports whether records are kept in a cluster.
func (c *Cluster) Enabled() bool { return len(c.Servers) > 0 }

// RecordLimits limit how much is kept. Zero means the default.
type RecordLimits struct {
	Free     Size // space of the file system that stays free
	Bytes    Size // per principal, as the limits below
	Sessions int
	Outputs  Size
}

// RecordLimits returns the limits of records with their defaults. Principals have a quota only if the server
// has several.
func (o *Options) RecordLimits() RecordLimits {
	l := o.Records.Limits
	l.Free = cmp.Or(l.Free, 64<<20)
	if o.HTTP.Authenticates() {
		l.Bytes, l.Outputs = cmp.Or(l.Bytes, 8<<30), cmp.Or(l.Outputs, 4<<30)
		l.Sessions = cmp.Or(l.Sessions, 20_000)
	}
	return l
}

// defaultRate is the number of requests that each of several principals may send per second; the burst is
// twice as large.
const defaultRate = 100

// defaultSharedRate is the same for all clients together of a server without authentication.
const defaultSharedRate = 1000

// Enabled reports whether the server serves over HTTP instead of stdio.
func (h *HTTP) Enabled() bool { return h.Addr != "" || h.Unix != "" }

// Authenticates reports whether the server distinguishes principals.
func (h *HTTP) Authenticates() bool { return h.Enabled() && (h.TokenFile != "" || h.Issuer != "") }

// RequestRate returns the number of requests per second that each principal may send; 0 means unlimited.
func (h *HTTP) RequestRate() float64 {
	switch {
	case h.Rate >= 0:
		return h.Rate
	case h.Authenticates():
		return defaultRate
	case h.Enabled():
		return defaultSharedRate
	}
	return 0 // stdio has one client, whose runs are limited
}

// rootKey is a root in the configuration file.
type rootKey struct{ Dir, Tier, Prefix string }

func (k *rootKey) table() []Option {
	return []Option{
		{Key: "dir", Value: &k.Dir, Path: anyPath, Required: true,
			Help: "directory or zip archive with skills"},
		{Key: "tier", Value: &k.Tier, Words: skills.TierNames(), Help: "its trust tier; default user"},
		{Key: "prefix", Value: &k.Prefix, Help: "prefix of the paths of its skills"},
	}
}

// spec returns the root in the form of --skills-root.
func (k *rootKey) spec() string {
	tier := cmp.Or(k.Tier, skills.TierUser.String())
	if k.Prefix != "" {
		tier += ":" + k.Prefix
	}
	return tier + "=" + k.Dir
}

// AllowForm describes --allow-skill-script and the script of an entry.
const AllowForm = "SKILL:scripts/PATH, optionally followed by @sha256:HEX, :execution=stdin and :pin=script"

// AllowKey is an entry of the allowlist: a string in the form of --allow-skill-script, or an object.
type AllowKey struct {
	Script    string   `json:"script"`
	Tree      string   `json:"tree,omitempty"`
	Pin       string   `json:"pin,omitempty"`
	Network   []string `json:"network,omitempty"`
	Env       []string `json:"env,omitempty"`
	Secrets   []string `json:"secrets,omitempty"`
	Workspace string   `json:"workspace,omitempty"`
	Timeout   Duration `json:"timeout,omitempty"`
	Memory    Size     `json:"memory,omitempty"`
	Ask       string   `json:"ask,omitempty"`
	Approve   string   `json:"approve,omitempty"`
	Target    string   `json:"target,omitempty"`
	Release   string   `json:"release,omitempty"`
	Execution string   `json:"execution,omitempty"`
	Path      []string `json:"path,omitempty"`
	// A key of environments.
	Environment string `json:"environment,omitempty"`
}

func (k *AllowKey) table() []Option {
	return []Option{
		{Key: "script", Value: &k.Script, Required: true,
			Help: AllowForm},
		{Key: "tree", Value: &k.Tree,
			Help: "sha256:HEX of all files of the skill, in addition to the digest of the script; without " +
				"it the other files of the skill may change before it is loaded"},
		{Key: "pin", Value: &k.Pin, Words: []string{"tree", "script"},
			Help: "tree refuses a run if any file of the skill has changed since it was loaded; script is " +
				"weaker: only the digest of the script is checked, and other files, which the script may " +
				"load, may have changed; default tree"},
		{Key: "network", Value: &k.Network,
			Help: "hosts a run may reach: NAME or NAME:PORT, exact match; default none"},
		{Key: "env", Value: &k.Env, Help: "variables of the server's environment to pass to the script"},
		{Key: "secrets", Value: &k.Secrets, Help: "secrets for the script, by their names in secrets"},
		{Key: "workspace", Value: &k.Workspace, Words: []string{"none", "ro", "staged", "rw"},
			Help: "access to the project directory; default the access of the server"},
		{Key: "timeout", Value: &k.Timeout,
			Help: "maximum time of a run, such as 90s; default the limit of the server"},
		{Key: "memory", Value: &k.Memory,
			Help: "maximum memory, such as 256MiB; default the limit of the server"},
		{Key: "ask", Value: &k.Ask, Words: []string{"always", "session", "never"},
			Help: "how often you are asked: always, for each run; session, until you allow the script " +
				"for the rest of the session; never, which needs the digest of the script and runs " +
				"exactly these bytes for any caller; by default scripts of third-party skills are " +
				"asked about, and others if the client sends no sign that you want the run"},
		{Key: "approve", Value: &k.Approve, Words: []string{"tier", "always", "never"},
			Help: "the name of ask in earlier releases; tier is the default of ask"},
		{Key: "target", Value: &k.Target, Words: targetWords(),
			Help: "where it runs; host also needs execution_target host, or a profile with it"},
		{Key: "release", Value: &k.Release, Words: releaseWords(),
			Help: "what a model sees of its output; default the release of policy"},
		{Key: "execution", Value: &k.Execution, Words: []string{"stdin"},
			Help: "stdin passes a bash, sh or deno script to its interpreter on standard input, without " +
				"the files of the skill; default from the stored copy of the skill"},
		{Key: "environment", Value: &k.Environment,
			Help: "environment with the packages of the script, by its name in environments"},
		{Key: "path", Value: &k.Path, Path: anyPath,
			Help: "directories of programs that a script on the host finds before those of the system, " +
				"such as ~/.npm-global/bin; needs target host"},
	}
}

// SecretKey is the source of a secret: exactly one of its fields is set.
type SecretKey struct {
	Env  string `json:"env,omitempty"`
	File string `json:"file,omitempty"`
}

func (k *SecretKey) table() []Option {
	return []Option{
		{Key: "env", Value: &k.Env, Help: "variable of the server's environment with the secret"},
		{Key: "file", Value: &k.File, Path: anyPath,
			Help: "file with the secret; one line end at its end is ignored"},
	}
}

// EnvironmentKey lists the packages of an environment. `skillsd env` writes it, and resolves the packages
// into a lock next to the configuration.
type EnvironmentKey struct {
	Python []string `json:"python,omitempty"`
	Node   []string `json:"node,omitempty"`
	Root   string   `json:"root,omitempty"` // relative to the file
	Base   string   `json:"base,omitempty"`
}

func (k *EnvironmentKey) table() []Option {
	return []Option{
		{Key: "python", Value: &k.Python, Help: "requirements of Python packages, such as openpyxl>=3.1"},
		{Key: "node", Value: &k.Node, Help: "npm packages, such as docx@^9"},
		{Key: "root", Value: &k.Root,
			Help: "root file system that replaces the host's, without packages: DIR, or oci:DIR or " +
				"oci:DIR:TAG of an OCI image layout"},
		{Key: "base", Value: &k.Base,
			Help: "environment with the root file system for the packages; default the host's"},
	}
}

// ProfileKey restricts the sessions under a profile.
type ProfileKey struct {
	Skills   []string `json:"skills,omitzero"`
	Scripts  []string `json:"scripts,omitzero"`
	Tools    []string `json:"tools,omitzero"`
	Activate []string `json:"activate,omitzero"`
	Target   string   `json:"target,omitempty"`
}

func (k *ProfileKey) table() []Option {
	return []Option{
		{Key: "skills", Value: &k.Skills, Help: "paths of the skills it allows; default all"},
		{Key: "scripts", Value: &k.Scripts, Help: "SKILL:scripts/PATH of the scripts it allows; default all"},
		{Key: "tools", Value: &k.Tools,
			Words: []string{mcpserver.ToolLoad, mcpserver.ToolRead, mcpserver.ToolSearch, mcpserver.ToolRun},
			Help:  "tools it allows; default all"},
		{Key: "activate", Value: &k.Activate,
			Help: "paths of skills that are loaded when a session with the profile starts"},
		{Key: "target", Value: &k.Target, Words: targetWords(), Help: "where its scripts run"},
	}
}

// SignerKey identifies a trusted signer of installed skills, and the trust tier of what it signs.
type SignerKey struct {
	SignedBy string   `json:"signed_by,omitempty"`
	Identity string   `json:"identity,omitempty"`
	Issuer   string   `json:"issuer,omitempty"`
	Tier     string   `json:"tier,omitempty"`
	Sources  []string `json:"sources,omitempty"`
}

func (k *SignerKey) table() []Option {
	return []Option{
		{Key: "signed_by", Value: &k.SignedBy, Path: anyPath,
			Help: "file with the public key of the signer, or with the certificate of a CA that certifies " +
				"keys"},
		{Key: "identity", Value: &k.Identity,
			Help: "identity of the signer, instead of signed_by: a mail address, or the URL of a " +
				"workflow; * matches any text without / and @"},
		{Key: "issuer", Value: &k.Issuer,
			Help: "URL of the issuer of the identity, such as https://token.actions.githubusercontent.com"},
		{Key: "tier", Value: &k.Tier, Words: skills.TierNames(),
			Help: "trust tier of the skills that they signed; default third-party"},
		{Key: "sources", Value: &k.Sources, Help: "prefixes of the sources for which the signature is " +
			"accepted, such as https://github.com/NVIDIA; default all"},
	}
}

// check returns an error if the key does not identify a signer.
func (k *SignerKey) check(root string) error {
	switch {
	case (k.SignedBy == "") == (k.Identity == ""):
		return errors.New("needs signed_by, or identity and issuer")
	case k.Identity == "" && k.Issuer == "":
		return nil
	case root == "":
		return errors.New("identity: needs trust.root, a trusted_root.json of Sigstore")
	}
	_, err := readIdentity("config", k.Issuer, k.Identity)
	return err
}

// PrincipalKey is the trust in a principal, and its limits.
type PrincipalKey struct {
	Evidence   bool   `json:"evidence,omitempty"`
	Profile    string `json:"profile,omitempty"`
	Concurrent int    `json:"concurrent,omitempty"` // maximum of concurrent runs; 0: half of all, rounded up

	// Limits of its records; 0: the limit in sessions.limits.
	RecordBytes    Size `json:"record_bytes,omitempty"`
	RecordSessions int  `json:"record_sessions,omitempty"`
	RecordOutputs  Size `json:"record_outputs,omitempty"`
}

func (k *PrincipalKey) table() []Option {
	return []Option{
		{Key: "evidence", Value: &k.Evidence, Help: "trust the prompt slots and modes that it sends"},
		{Key: "profile", Value: &k.Profile, Help: "profile of all its requests"},
		{Key: "concurrent", Value: &k.Concurrent,
			Help: "maximum of concurrent runs; default half of limits.concurrent, rounded up"},
		{Key: "record_bytes", Value: &k.RecordBytes,
			Help: "maximum size of its session logs; default sessions.limits.bytes"},
		{Key: "record_sessions", Value: &k.RecordSessions,
			Help: "maximum number of its kept sessions; default sessions.limits.sessions"},
		{Key: "record_outputs", Value: &k.RecordOutputs,
			Help: "maximum size of the kept outputs of its scripts; default sessions.limits.outputs"},
	}
}

// HintUIDs is the advice for an invalid range of users.
const HintUIDs = "name user IDs that nothing else on this machine uses"

// UIDs returns the users for the runs of a server of root; each run has one to itself.
//
// Errors: *[exit.Error] if the option is not a range.
func (o *Options) UIDs() (native.UIDs, error) {
	u, err := native.ParseUIDs(o.SandboxUIDs)
	if err != nil {
		return u, exit.Usagef(HintUIDs, "--sandbox-uids: %w", err)
	}
	if u == (native.UIDs{}) {
		u = native.DefaultUIDs()
	}
	return u, nil
}

// WorkspaceOwner returns the user and group whose rights scripts of a server of root have in a workspace. A
// number without an account is used as the group too. The zero value grants no rights.
//
// Errors: *[exit.Error] if the user does not exist, is root, or is in the range of users for runs.
func (o *Options) WorkspaceOwner() (owner sandbox.Owner, err error) {
	if o.Owner == "" {
		return owner, nil
	}
	refuse := func(reason string) (sandbox.Owner, error) {
		return sandbox.Owner{}, exit.Usagef("name the owner of the workspace", "--workspace-owner: %s %s",
			o.Owner, reason)
	}
	number, err := strconv.ParseUint(o.Owner, 10, 32)
	isNumber := err == nil
	uid, gid := number, number
	lookup := user.Lookup
	if isNumber {
		lookup = user.LookupId
	}
	if account, err := lookup(o.Owner); err == nil {
		uid, err = strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return refuse("has no user ID on this system")
		}
		gid, err = strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return refuse("has no user ID on this system")
		}
	} else if !isNumber {
		return refuse("is not a user of this machine")
	}
	owner = sandbox.Owner{UID: uint32(uid), GID: uint32(gid)}
	switch u, err := o.UIDs(); {
	case uid == 0:
		return refuse("is root; scripts never run with the rights of root")
	// For chown and setresuid, -1 means that the ID stays.
	case uid == 1<<32-1 || gid == 1<<32-1:
		return refuse("is not a user")
	// A run with this user would have the rights of the owner.
	case err == nil && uint64(u.First) <= uid && uid <= uint64(u.Last):
		return refuse(fmt.Sprintf("is one of the user IDs %v reserved for runs", u))
	}
	return owner, nil
}
