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

// Options are the values of the options of a server, from all places together. [Options.Table] says what
// each of them is called.
type Options struct {
	Roots   RootOptions
	Choice  SkillOptions
	HTTP    HTTP
	Metrics struct {
		Addr     string
		Insecure bool
	}
	Page    Page // the operator's
	Cluster Cluster
	Records struct { // what is kept of sessions
		SignKey   string
		KeepShown bool
		Limits    RecordLimits
		GC        struct { // automatic deletion of whole sessions; zero is none
			Age   Duration
			Total Size
		}
	}
	Resume   struct{ Session, Drift string } // of a recorded session
	Manifest string                          // the file about the run a server belongs to

	Skills        []string
	NoCatalog     bool
	Search        string
	CatalogBudget Size
	CatalogOrder  string
	Watch         bool
	NoWatch       bool // a flag only: the opposite of Watch
	AllowTools    []string
	AllowScripts  []string   // the scripts of Allow, or those of the command line or the environment
	Allow         []AllowKey // of the file
	Secrets       map[string]SecretKey
	Profiles      map[string]ProfileKey
	Required      []string                // of the file: beginnings of sources whose skills must be signed
	Signers       map[string]SignerKey    // of the file
	TrustedRoot   string                  // of the file: a trusted_root.json
	Verifier      string                  // of the file: the program that verifies identities
	Principals    map[string]PrincipalKey // of the file
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
	Interpreters  map[string]string         // of the file: paths, by InterpreterKey
	Environments  map[string]EnvironmentKey // of the file
	Index         map[string]string         // of the file: URLs of python and node
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
	// Activation says what shows that a call belongs to the conversation that loaded a skill.
	Activation string
	Hosts      []string
	Origins    []string
	Cert       string
	Key        string
	Rate       float64 // negative for the default
	NoAuth     bool
	// SharedRecords starts a server although another one serves from its records.
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
	Client   string // id of the client at the issuer of HTTP; empty for a link
	Secret   string // file
	URL      string
	Scopes   []string
	Claim    string
	Operator string // a role, as Viewer is
	Viewer   string
}

// Cluster says which cluster has the records, and what this server is there.
type Cluster struct {
	Servers           []string // URLs of servers of NATS; none: records are files
	Creds             string
	CA, Cert, CertKey string // of TLS to these servers
	Prefix            string
	Replicas          int
	Key               string // file
	Node, Addr        string // name of this server, and where others reach it
	Generation        int    // of the configuration
	Pool              string // of workers; empty: scripts run here
}

// Enabled reports whether records are in a cluster.
func (c *Cluster) Enabled() bool { return len(c.Servers) > 0 }

// RecordLimits say how much is kept. Zero is the default of each.
type RecordLimits struct {
	Free     Size // of the file system, which stays free
	Bytes    Size // of one principal, like the others
	Sessions int
	Outputs  Size
}

// RecordLimits returns the limits of records with their defaults: a principal has a quota where there are
// several.
func (o *Options) RecordLimits() RecordLimits {
	l := o.Records.Limits
	l.Free = cmp.Or(l.Free, 64<<20)
	if o.HTTP.Authenticates() {
		l.Bytes, l.Outputs = cmp.Or(l.Bytes, 8<<30), cmp.Or(l.Outputs, 4<<30)
		l.Sessions = cmp.Or(l.Sessions, 20_000)
	}
	return l
}

// defaultRate is the number of requests a second each of several principals may send, with twice as many
// at once.
const defaultRate = 100

// defaultSharedRate is that number for all clients of a server without authentication together.
const defaultSharedRate = 1000

// Enabled reports whether the server is reached over HTTP and not over stdio.
func (h *HTTP) Enabled() bool { return h.Addr != "" || h.Unix != "" }

// Authenticates reports whether the server knows several principals.
func (h *HTTP) Authenticates() bool { return h.Enabled() && (h.TokenFile != "" || h.Issuer != "") }

// RequestRate returns the number of requests a second each principal may send, 0 for any number.
func (h *HTTP) RequestRate() float64 {
	switch {
	case h.Rate >= 0:
		return h.Rate
	case h.Authenticates():
		return defaultRate
	case h.Enabled():
		return defaultSharedRate
	}
	return 0 // of the one client on stdio the runs are bounded
}

// rootKey is a root as the configuration file describes it.
type rootKey struct{ Dir, Tier, Prefix string }

func (k *rootKey) table() []Option {
	return []Option{
		{Key: "dir", Value: &k.Dir, Path: anyPath, Required: true,
			Help: "directory or zip archive with skills"},
		{Key: "tier", Value: &k.Tier, Words: skills.TierNames(), Help: "how far it is trusted; default user"},
		{Key: "prefix", Value: &k.Prefix, Help: "put in front of the paths of its skills"},
	}
}

// spec returns the root as --skills-root takes it.
func (k *rootKey) spec() string {
	tier := cmp.Or(k.Tier, skills.TierUser.String())
	if k.Prefix != "" {
		tier += ":" + k.Prefix
	}
	return tier + "=" + k.Dir
}

// AllowForm is what --allow-skill-script and the script of an entry are like.
const AllowForm = "SKILL:scripts/PATH, and after it, if wanted, @sha256:HEX, :execution=stdin, :pin=script"

// AllowKey is an entry of the allowlist: a string as --allow-skill-script takes it, or an object.
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
	// of environments
	Environment string `json:"environment,omitempty"`
}

func (k *AllowKey) table() []Option {
	return []Option{
		{Key: "script", Value: &k.Script, Required: true,
			Help: AllowForm},
		{Key: "tree", Value: &k.Tree,
			Help: "sha256:HEX of all files of the skill, with the digest of the script; without it the " +
				"other files of the skill may change before it is loaded"},
		{Key: "pin", Value: &k.Pin, Words: []string{"tree", "script"},
			Help: "tree refuses a run when any file of the skill has changed since it was loaded; script " +
				"is weaker: the digest of the script alone decides, and a run takes the other files, " +
				"which the script may load, as they are; default tree"},
		{Key: "network", Value: &k.Network,
			Help: "hosts a run may reach: NAME or NAME:PORT, exactly; default none"},
		{Key: "env", Value: &k.Env, Help: "variables of the server's environment that are passed through"},
		{Key: "secrets", Value: &k.Secrets, Help: "secrets the script gets, by their names in secrets"},
		{Key: "workspace", Value: &k.Workspace, Words: []string{"none", "ro", "staged", "rw"},
			Help: "how it sees the workspace; default as the workspace is granted"},
		{Key: "timeout", Value: &k.Timeout,
			Help: "longest run, such as 90s; default the limit of the server"},
		{Key: "memory", Value: &k.Memory,
			Help: "most memory, such as 256MiB; default the limit of the server"},
		{Key: "ask", Value: &k.Ask, Words: []string{"always", "session", "never"},
			Help: "how often the user is asked: about each run; until they allow the script for the rest " +
				"of the session; or never, which needs the digest of the script: exactly these bytes run " +
				"for whoever calls; default as the trust tier and the policy demand"},
		{Key: "approve", Value: &k.Approve, Words: []string{"tier", "always", "never"},
			Help: "the name of ask in earlier releases; tier is the default of ask"},
		{Key: "target", Value: &k.Target, Words: targetWords(),
			Help: "where it runs; host needs execution_target host or a profile as well"},
		{Key: "release", Value: &k.Release, Words: releaseWords(),
			Help: "release of its output; default the release of policy"},
		{Key: "execution", Value: &k.Execution, Words: []string{"stdin"},
			Help: "stdin gives a bash, sh or deno script to its interpreter on standard input, without its " +
				"place in the skill; default from the stored tree"},
		{Key: "environment", Value: &k.Environment,
			Help: "packages that the script finds, by their name in environments"},
		{Key: "path", Value: &k.Path, Path: anyPath,
			Help: "directories of programs that a script on the host finds before those of the system, " +
				"such as ~/.npm-global/bin; with target host"},
	}
}

// SecretKey says where a secret comes from: exactly one of its fields is set.
type SecretKey struct {
	Env  string `json:"env,omitempty"`
	File string `json:"file,omitempty"`
}

func (k *SecretKey) table() []Option {
	return []Option{
		{Key: "env", Value: &k.Env, Help: "variable of the server's environment that holds it"},
		{Key: "file", Value: &k.File, Path: anyPath,
			Help: "file that holds it; a line end at its end does not belong to it"},
	}
}

// EnvironmentKey says which packages an environment has. `skillsd env` writes it, and resolves them into a
// lock next to the configuration.
type EnvironmentKey struct {
	Python []string `json:"python,omitempty"`
	Node   []string `json:"node,omitempty"`
	Root   string   `json:"root,omitempty"` // relative to the file
	Base   string   `json:"base,omitempty"`
}

func (k *EnvironmentKey) table() []Option {
	return []Option{
		{Key: "python", Value: &k.Python, Help: "requirements of Python packages, such as openpyxl>=3.1"},
		{Key: "node", Value: &k.Node, Help: "packages of npm, such as docx@^9"},
		{Key: "root", Value: &k.Root, Help: "a root file system in the place of the host's, " +
			"without packages: " +
			"DIR, or oci:DIR or oci:DIR:TAG of an OCI image layout"},
		{Key: "base", Value: &k.Base, Help: "the environment whose root file system the packages are " +
			"for; default " +
			"the host's"},
	}
}

// ProfileKey narrows what the sessions under a profile may do.
type ProfileKey struct {
	Skills   []string `json:"skills,omitzero"`
	Scripts  []string `json:"scripts,omitzero"`
	Tools    []string `json:"tools,omitzero"`
	Activate []string `json:"activate,omitzero"`
	Target   string   `json:"target,omitempty"`
}

func (k *ProfileKey) table() []Option {
	return []Option{
		{Key: "skills", Value: &k.Skills, Help: "paths of the skills it leaves; default all"},
		{Key: "scripts", Value: &k.Scripts, Help: "SKILL:scripts/PATH of the scripts it leaves; default all"},
		{Key: "tools", Value: &k.Tools,
			Words: []string{mcpserver.ToolLoad, mcpserver.ToolRead, mcpserver.ToolSearch, mcpserver.ToolRun},
			Help:  "tools it leaves; default all"},
		{Key: "activate", Value: &k.Activate,
			Help: "paths of skills that are active when a session with the profile starts"},
		{Key: "target", Value: &k.Target, Words: targetWords(), Help: "where its scripts run"},
	}
}

// SignerKey says who somebody is whose signature of an installed skill counts, and how much.
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
			Help: "file with the public key that signs, or with the certificate of an authority that " +
				"certifies keys"},
		{Key: "identity", Value: &k.Identity,
			Help: "who signs, instead of signed_by: a mail address, or the URL of a workflow; * is any " +
				"text without / and @"},
		{Key: "issuer", Value: &k.Issuer,
			Help: "URL of the issuer that knows the identity, such as " +
				"https://token.actions.githubusercontent.com"},
		{Key: "tier", Value: &k.Tier, Words: skills.TierNames(),
			Help: "how far the skills that they signed are trusted; default third-party"},
		{Key: "sources", Value: &k.Sources, Help: "beginnings of the sources for which the signature " +
			"counts, such as https://github.com/NVIDIA; default all"},
	}
}

// check returns why nobody is the signer.
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

// PrincipalKey says how far a principal is trusted, and what it may use.
type PrincipalKey struct {
	Evidence   bool   `json:"evidence,omitempty"`
	Profile    string `json:"profile,omitempty"`
	Concurrent int    `json:"concurrent,omitempty"` // most runs at once; 0: half of all, rounded up

	// Limits of its records; 0: as sessions.limits says.
	RecordBytes    Size `json:"record_bytes,omitempty"`
	RecordSessions int  `json:"record_sessions,omitempty"`
	RecordOutputs  Size `json:"record_outputs,omitempty"`
}

func (k *PrincipalKey) table() []Option {
	return []Option{
		{Key: "evidence", Value: &k.Evidence, Help: "believe what it says about prompt slots and modes"},
		{Key: "profile", Value: &k.Profile, Help: "profile of all its requests"},
		{Key: "concurrent", Value: &k.Concurrent,
			Help: "most runs at once; default half of limits.concurrent, rounded up"},
		{Key: "record_bytes", Value: &k.RecordBytes,
			Help: "most that its records take; default sessions.limits.bytes"},
		{Key: "record_sessions", Value: &k.RecordSessions,
			Help: "most sessions that are kept of it; default sessions.limits.sessions"},
		{Key: "record_outputs", Value: &k.RecordOutputs,
			Help: "most that kept outputs of its scripts take; default sessions.limits.outputs"},
	}
}

// HintUIDs mends a range of users.
const HintUIDs = "name users whom nothing else on this machine has"

// UIDs returns the users of which each run of a root server has one to itself.
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

// WorkspaceOwner returns the user, and their group, whose rights scripts of a server of root have in a
// workspace. A number need not be an account's: its group is then the same number. The zero value is
// nobody.
//
// Errors: *[exit.Error] if there is no such user, or it is root or one of those that runs have to themselves.
func (o *Options) WorkspaceOwner() (owner sandbox.Owner, err error) {
	if o.Owner == "" {
		return owner, nil
	}
	refuse := func(reason string) (sandbox.Owner, error) {
		return sandbox.Owner{}, exit.Usagef("name the user whose workspace it is", "--workspace-owner: %s %s",
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
			return refuse("has no number on this system")
		}
		gid, err = strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return refuse("has no number on this system")
		}
	} else if !isNumber {
		return refuse("is not a user of this machine")
	}
	owner = sandbox.Owner{UID: uint32(uid), GID: uint32(gid)}
	switch u, err := o.UIDs(); {
	case uid == 0:
		return refuse("is root, whose rights no script has")
	case uid == 1<<32-1 || gid == 1<<32-1:
		return refuse("is not a user")
	case err == nil && uint64(u.First) <= uid && uid <= uint64(u.Last):
		return refuse(fmt.Sprintf("is one of the users %v that scripts run as", u))
	}
	return owner, nil
}
