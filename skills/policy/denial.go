package policy

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// Reason is the reason of a denied observation, one of the four in the reference.
type Reason string

// The reasons.
const (
	NotAuthorized          Reason = "not-authorized"
	NotObservable          Reason = "not-observable"
	NeedsOpaquePassThrough Reason = "needs-opaque-pass-through"
	NeedsSanitizingWorker  Reason = "needs-sanitizing-worker"
)

// Code identifies a kind of denial. The list is closed: a code is declared here and has one row in the table
// of codes, with its reason and its short text; the texts of each rule are in the table of refusals.
type Code string

// The codes of denials.
const (
	CodeToolNotAllowed         Code = "tool_not_allowed"
	CodeDirectCommandRequired  Code = "direct_command_required"
	CodeSkillNotActivated      Code = "skill_not_activated"
	CodeActivationUnknown      Code = "activation_unknown"
	CodeScriptNotAllowlisted   Code = "script_not_allowlisted"
	CodeAllowedToolsConflict   Code = "allowed_tools_conflict"
	CodeTierDenied             Code = "tier_denied"
	CodeApprovalRequired       Code = "approval_required"
	CodeApprovalDeclined       Code = "approval_declined"
	CodeProfileExcludes        Code = "profile_excludes"
	CodePermissionDenied       Code = "permission_denied"
	CodeLeaseInvalid           Code = "lease_invalid"
	CodeResourceOutsideRoot    Code = "resource_outside_root"
	CodeScriptOutsideRoot      Code = "script_outside_root"
	CodeScriptSnapshotMismatch Code = "script_snapshot_mismatch"
	CodeOutputNotReleased      Code = "output_not_released"
	CodeOutputOpaque           Code = "output_opaque"
)

// codes is the table of codes: the reason in the reference's terms, a short text for a list of scripts, and
// the default remedies of refusals. A remedy is for a model: it names whom to ask for what, and contains no
// flag or command with which the model could grant itself access. operator is for the operator; it goes into
// the log and the record.
var codes = map[Code]struct {
	reason   Reason
	brief    string
	remedy   string // with names of words in braces, see refuse
	operator string // likewise; empty: the same as remedy
}{
	CodeToolNotAllowed: {NotAuthorized, "this server does not offer run_skill_script",
		"ask the user whether this server should offer it; `skillsd doctor`, in a terminal of their own, " +
			"has how",
		"to allow the script, and with it the tool: `skillsd allow {shell script}`"},
	CodeDirectCommandRequired: {NotAuthorized, "nothing shows that the user wants it",
		remedyUnasked, operatorNever},
	CodeSkillNotActivated: {NotAuthorized, "the skill is not loaded",
		"call load_skill with this skill, then run the script again", ""},
	CodeActivationUnknown: {NotAuthorized, "the activation handle is unknown or has expired",
		"call load_skill again and use the handle it returns", ""},
	CodeScriptNotAllowlisted: {NotAuthorized, "not allowed",
		"if the user wants it to run, they can allow it at a terminal of their own, not in an agent's shell",
		"to read and allow it: `skillsd allow {shell script}`"},
	CodeAllowedToolsConflict: {NotAuthorized, "the skill's own allowed-tools do not cover it",
		"ask the user: the skill's author can add run_skill_script to allowed-tools, or the user can " +
			"take that list as advice",
		"the skill's author can add run_skill_script to allowed-tools, or you can serve with " +
			"--allowed-tools advisory, or policy.allowed_tools in the configuration"},
	CodeTierDenied: {NotAuthorized, "scripts of this tier are not run here",
		"do without the script, or ask the user whether scripts of tier {tier} should run here",
		"you can serve without --tier-scripts {tier}=deny, or without it in policy.tier_scripts"},
	CodeApprovalRequired: {NotAuthorized, "it needs an approval that this client cannot ask for",
		remedyUnasked,
		operatorAsked + "change ask in the entry of the script"},
	CodeApprovalDeclined: {NotAuthorized, "the user declined it",
		"ask the user before you call the tool again", ""},
	CodeProfileExcludes: {NotAuthorized, "the profile does not include it",
		"do without it, or ask the user whether this session should have it",
		"you can add it to the profile, or choose another one"},
	CodePermissionDenied: {NotAuthorized, "it needs the host",
		"ask the user whether scripts may run on the host, outside of the sandbox",
		"you can start the server with --skill-script-execution-target host, or " +
			"policy.execution_target in the configuration, or with a profile whose target is host"},
	CodeLeaseInvalid: {NotAuthorized, "it needs a browser lease",
		"the client can lease a browser on this machine and send it with the call as _meta " +
			"skillsd/browser-lease", ""},
	CodeResourceOutsideRoot: {NotObservable, "it lies outside of its skill",
		"the user can put the file inside the skill", ""},
	CodeScriptOutsideRoot: {NotObservable, "it lies outside of its skill",
		"the user can put the file inside the skill", ""},
	CodeScriptSnapshotMismatch: {NotObservable, "it is not what was allowed",
		"ask the user to review what changed in the skill and to allow it again; load the skill " +
			"again after that",
		"you can review the change and allow the script again; then load the skill again"},
	CodeOutputNotReleased: {NotObservable, "its output is not released",
		"nothing ran; ask the user whether its output may be shown to you: `skillsd doctor`, in a terminal " +
			"of their own, has how",
		"you can release it with --release observed, or --release opaque to run it " +
			"without showing " +
			"its output; or with release in its entry, or policy.release, in the configuration"},
	CodeOutputOpaque: {NeedsOpaquePassThrough, "its output is not shown",
		"the user can read it in the log of this session",
		"you can read it with `skillsd session show SESSION --output HANDLE`"},
}

// operatorNever describes how the operator can let a script run without asking.
const operatorNever = "to allow it without a question: `skillsd allow --ask never {shell script}`"

// operatorAsked begins the alternatives to asking the user.
const operatorAsked = "use a client through which the server can ask you, or "

// remedyUnasked is the remedy if an approval by the user would be enough.
const remedyUnasked = "if the user wants this, they can use a client through which the server " +
	"can ask them, " +
	"or change what its configuration demands"

// Reason returns the reason of a code, or NotAuthorized if the code is unknown.
func (c Code) Reason() Reason { return cmp.Or(codes[c].reason, NotAuthorized) }

// Brief returns a short text why a script cannot run, for a list of scripts.
func (c Code) Brief() string { return cmp.Or(codes[c].brief, string(c)) }

// Remedy returns the remedy of a code for a model, for a list of codes. Names in braces are replaced by words
// of the request; the remedy of a denial may be more specific.
func (c Code) Remedy() string { return codes[c].remedy }

// Operator returns the remedy of a code for the operator, with flags and commands, for a list of codes.
func (c Code) Operator() string {
	return strings.ReplaceAll(cmp.Or(codes[c].operator, codes[c].remedy), "{shell script}", "{script}")
}

// Codes returns all codes of denials, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(codes)) }

// refusal is one way in which a rule refuses a request.
type refusal struct {
	code           Code
	rule           string // empty: the code
	plain          string // the detail for a user, if that has the wording of the reference; may be empty
	detail, remedy string // with names of words in braces, see refuse; empty remedy: that of the code
	operator       string // likewise; empty: the remedy of the row, or else that of the code
}

// The table of refusals, in the order of the rules.
var (
	toolNotOffered = refusal{code: CodeToolNotAllowed,
		plain:  "this server does not offer {tool}",
		detail: "{tool} is not allowed in this run"}
	profileUnknown = refusal{code: CodeProfileExcludes, rule: ruleProfile,
		detail:   "{tool}: this session is held to a profile that does not exist",
		remedy:   "ask the user to have the profile of this session fixed",
		operator: "you can configure the profile, or choose one that exists"}
	profileExcludes = refusal{code: CodeProfileExcludes, rule: ruleProfile,
		detail: "{tool}: the profile {profile} does not include {what}"}
	modeUnknown = refusal{code: CodeDirectCommandRequired, rule: "mode_unknown",
		detail:   "{tool}: the enforcement mode is unknown",
		remedy:   "ask the user to have the server's enforcement mode fixed",
		operator: "you can set --cfc-enforcement-mode, or policy.mode in the configuration"}
	handleUnknown = refusal{code: CodeActivationUnknown,
		detail: "{tool}: the activation handle is unknown or has expired"}
	notActivated = refusal{code: CodeSkillNotActivated,
		plain:  "the skill {skill} is not loaded",
		detail: "{tool}: skill is not activated for this run: {skill}"}
	notActivatedUnnamed = refusal{code: CodeSkillNotActivated,
		plain:  "the skill {skill} is not loaded",
		detail: "{tool}: skill is not activated for this run: {skill}",
		remedy: "call load_skill with this skill, then run the script again and pass on, as the argument " +
			"activation, the handle in the line Activation of what load_skill returned: this client names " +
			"no session"}
	notAllowlisted = refusal{code: CodeScriptNotAllowlisted,
		plain:  "{script} is not allowed",
		detail: "{tool}: skill script is not exactly allowlisted: {script}"}
	notNameable = refusal{code: CodeScriptNotAllowlisted,
		plain:  "{script} is not allowed",
		detail: "{tool}: skill script is not exactly allowlisted: {script}",
		remedy: "ask the user to rename the directory of the skill: no script below this path can be allowed",
		operator: "you can rename the directory of the skill, in letters that can be " +
			"seen, without " +
			"\\, :, *, ?, [ and a leading -, and then allow the script"}
	noSuchScript = refusal{code: CodeScriptNotAllowlisted,
		detail: "{tool}: the skill has no such script: {script}",
		remedy: "{instead}"}
	absentAtStart = refusal{code: CodeScriptSnapshotMismatch,
		detail: "{tool}: the skill was not there when the server started, so its entry allows nothing",
		remedy: "ask the user to review the skill and to allow the script",
		operator: "you can review the skill and allow the script with `skillsd allow {shell " +
			"script}`"}
	pinnedTreeChanged = refusal{code: CodeScriptSnapshotMismatch,
		detail: "{tool}: the skill changed since the script was allowed: other files of it are " +
			"not what they were",
		operator: "you can review the skill and allow the script again with `skillsd allow {shell " +
			"script}`"}
	pinnedScriptChanged = refusal{code: CodeScriptSnapshotMismatch,
		detail:   "{tool}: the script's digest is not the one that was allowed",
		operator: "you can read the script and allow it again with `skillsd allow {shell script}`"}
	treeChanged = refusal{code: CodeScriptSnapshotMismatch,
		detail: "{tool}: the skill's files differ from those that were there when the server started",
		remedy: remedyAgain,
		operator: "you can review the change and allow the script again with `skillsd allow " +
			"{shell script}`"}
	scriptChanged = refusal{code: CodeScriptSnapshotMismatch,
		detail: "{tool}: the script differs from the one that was there when the server started",
		remedy: remedyAgain,
		operator: "you can review the change and allow the script again with `skillsd allow " +
			"{shell script}`"}
	toolsConflict = refusal{code: CodeAllowedToolsConflict,
		detail: "{tool}: the skill's own allowed-tools does not cover this script"}
	tierClosed = refusal{code: CodeTierDenied,
		detail: "{tool}: scripts of tier {tier} are not run here"}
	targetUnknown = refusal{code: CodePermissionDenied,
		detail:   "{tool}: the entry's target is unknown",
		remedy:   "ask the user to have the script's entry in the configuration fixed",
		operator: "you can set it to sandbox or host"}
	keptInSandbox = refusal{code: CodePermissionDenied,
		detail: "{tool}: a profile of this session keeps scripts in the sandbox, and this one runs on the " +
			"host",
		operator: "you can choose another profile, or set the entry's target to sandbox"}
	hostNotEnabled = refusal{code: CodePermissionDenied,
		detail: "{tool}: this script runs on the host, which is not enabled"}
	leaseInvalid = refusal{code: CodeLeaseInvalid,
		detail: "{tool}: {cause}"}
	otherBrowser = refusal{code: CodeLeaseInvalid,
		detail: "{tool}: --cdp names another browser than the lease",
		remedy: "leave --cdp out: the script is given the leased browser"}
	strictNeedsCommand = refusal{code: CodeDirectCommandRequired, rule: ruleStrictNeeds,
		plain:  "nothing shows that the user wants this",
		detail: "{tool} requires direct-command authorization in {mode}"}
	explicitNeedsCommand = refusal{code: CodeDirectCommandRequired, rule: ruleExplicitNeeds,
		plain:  "nothing shows that the user wants this",
		detail: "{tool} requires direct-command authorization in {mode}"}
	entryNeedsApproval = refusal{code: CodeApprovalRequired,
		detail:   "{tool}: this script needs an approval by the user for each run",
		operator: operatorNever}
	entryNeedsSession = refusal{code: CodeApprovalRequired,
		detail:   "{tool}: this script needs an approval by the user in each session",
		operator: entryNeedsApproval.operator}
	tierNeedsApproval = refusal{code: CodeApprovalRequired,
		detail: "{tool}: scripts of tier {tier} need an approval by the user",
		operator: operatorNever + "; to be asked less about all skills of its directory, trust that more: " +
			"`skillsd help allow`"}
	notReleased = refusal{code: CodeOutputNotReleased,
		detail: "{tool}: the run could show the model more than the skill's own files, and its output is " +
			"not released"}
)

const remedyAgain = "ask the user to review the change and to allow the script again"

// Denial is a refusal. Its texts are public: they contain no host path, no secret and no value of the caller
// longer than a name.
type Denial struct {
	Reason Reason
	Code   Code
	Detail string // the tool and the missing authority, as worded by the reference if it has this rule
	Plain  string // Detail as worded for a user, without the tool
	Skill  string
	Path   string
	Remedy string // for a model: what to do, or whom to ask
	// Operator is the remedy for the operator, with flags and commands: for the log, the record and the
	// operator's own commands. Clients do not get it, since a model with a shell would follow it.
	Operator string
	RuleID   string
	// ApprovalCode identifies the call for a user who approves it outside of the client; may be empty.
	ApprovalCode string
}

// NewDenial returns a denial with the reason of its code and the code as its rule.
func NewDenial(code Code, detail, remedy string) *Denial {
	return &Denial{Reason: code.Reason(), Code: code, Detail: detail, Plain: detail, Remedy: remedy,
		Operator: remedy, RuleID: string(code)}
}

func (d *Denial) Error() string { return d.Detail }

// refuse returns the denial of a request: a row of the table of refusals in which words of the request
// replace their names in braces. more has further pairs of names and words.
func (r *Request) refuse(why refusal, more ...string) *Denial {
	script := r.Skill + ":" + r.Path
	shell := shellWord(script)
	// The command would otherwise end in a bare colon, which `skillsd allow` refuses.
	if r.Path == "" {
		shell = "SKILL:SCRIPT" // the request names no script
	}
	words := append([]string{"{tool}", Clip(r.Tool), "{skill}", Clip(r.Skill), "{script}", Clip(script),
		"{shell script}", shell, "{tier}", r.Tier.String()}, more...)
	common := codes[why.code]
	remedy := fill(cmp.Or(why.remedy, common.remedy), words)
	operator := fill(cmp.Or(why.operator, why.remedy, common.operator, common.remedy), words)
	plain := strings.TrimPrefix(cmp.Or(why.plain, why.detail), "{tool}: ")
	return &Denial{Reason: why.code.Reason(), Code: why.code, Detail: fill(why.detail, words),
		Plain: fill(plain, words), Skill: Clip(r.Skill), Path: Clip(r.Path), Remedy: remedy,
		Operator: operator, RuleID: cmp.Or(why.rule, string(why.code))}
}

// fill replaces names in braces by words, given as pairs of name and word, in one pass: names in words of the
// caller are not replaced. Creating a [strings.Replacer] would take longer than the rest of a denial, and a
// load makes one denial per script.
func fill(text string, words []string) string {
	var b strings.Builder
	for text != "" {
		i := 0
		for i < len(words) && !strings.HasPrefix(text, words[i]) {
			i += 2
		}
		if i < len(words) {
			b.WriteString(words[i+1])
			text = text[len(words[i]):]
			continue
		}
		// The search starts at 1 because a brace at 0 that names no word is ordinary text.
		next := strings.IndexByte(text[1:], '{') + 1
		if next == 0 {
			next = len(text)
		}
		b.WriteString(text[:next])
		text = text[next:]
	}
	return b.String()
}

// shellWord returns a clipped name as one word of a POSIX shell's command line. A name chosen by the author
// of a skill must not run anything when an operator pastes it.
func shellWord(name string) string {
	name = Clip(name)
	// Names of ordinary characters stay without quotes, so that the command reads as in the documentation.
	if name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("-_./:@", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') &&
			(c < 'a' || c > 'z')
	}) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// ApprovalRequired is a refusal that an approval by the user would override.
type ApprovalRequired struct {
	Denial   *Denial // the answer if the user cannot be asked
	Remember bool    // an approval for the rest of the session is enough
	Entry    Entry   // the allowlist entry of the run
	Target   Target
	Tier     skills.Tier
}

func (a *ApprovalRequired) Error() string { return a.Denial.Detail }

// Unwrap makes the denial reachable for errors.As.
func (a *ApprovalRequired) Unwrap() error { return a.Denial }

// DenialOf returns the denial in an error of Decide.
func DenialOf(err error) *Denial {
	if denial, ok := errors.AsType[*Denial](err); ok {
		return denial
	}
	panic("policy: not an error of Decide: " + err.Error())
}
