package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/source/signed"
	"github.com/skillsd/skillsd/skills/store"
)

// inspectTime limits the verification of installed skills; on a usual disk it is enough for some ten
// thousand.
const inspectTime = 10 * time.Second

// noLimit is the time for a thorough verification.
const noLimit = 24 * time.Hour

// maxInstalledProblems is the maximum of reported problems of installed skills, unless Thorough is set.
const maxInstalledProblems = 10

// checkInstalled compares the installed skills with the lock file, and with the trusted signers.
func (o *Doctor) checkInstalled(ctx context.Context) []Check {
	state, err := o.Process.StateDir()
	if err != nil {
		// The check of the directories reports it.
		return nil
	}
	lock, err := install.ReadLock(install.LockFile(state))
	if err != nil {
		return notVerified(state, err)
	}
	// The served directories may have files that were never installed, even if the lock file has no entry.
	if len(lock.Skills) == 0 && len(o.Process.InstalledRoots()) == 0 {
		return []Check{ofInstalled(OK, "no skill is installed", "")}
	}
	trees, err := store.Open(state)
	if err != nil {
		return []Check{ofInstalled(Fail, "not verified: "+err.Error(),
			"make it writable for the user that runs skillsd: "+
				"chown -R \"$(id -un)\" "+report.ShellLine(state))}
	}
	defer trees.Close()
	line := report.NewStatusLine(o.Err)
	cfg := install.Config{State: state, Trees: trees, Progress: line.Count}
	limit, most := inspectTime, maxInstalledProblems
	if o.Thorough {
		limit, most = noLimit, math.MaxInt
	}
	found, err := install.Inspect(ctx, cfg, limit)
	line.Clear()
	if err != nil {
		return notVerified(state, err)
	}
	if found.Busy {
		return []Check{ofInstalled(Warn, "not verified: another skillsd is changing what is installed",
			"run skillsd doctor again when it is done")}
	}
	checks := slices.Concat(differences(state, found, most), waiting(state, found.Lock),
		o.untrusted(found.Lock))
	if left := len(found.Lock.Skills) - found.Verified; left > 0 {
		checks = append(checks, ofInstalled(Warn,
			fmt.Sprintf("%s not verified within %v", report.Plural(left, "skill"), limit),
			"run: skillsd doctor --verbose"))
	}
	if len(checks) == 0 {
		return []Check{ofInstalled(OK, report.LockContent(found.Lock)+": every byte as it was installed", "")}
	}
	return checks
}

// ofInstalled returns a check of the installed skills.
func ofInstalled(verdict, fact, hint string) Check {
	return Check{Verdict: verdict, Area: "installed", Fact: fact, Hint: hint}
}

// notVerified returns the check of installed skills that cannot be compared.
func notVerified(state string, err error) []Check {
	if _, unreadable := errors.AsType[*install.LockError](err); unreadable {
		return []Check{ofInstalled(Fail, err.Error(), report.HintLock(install.LockFile(state)))}
	}
	return []Check{ofInstalled(Fail, "not verified: "+err.Error(),
		"repair it, then run skillsd doctor again")}
}

// differences returns checks of at most most differences between the files and the lock file.
func differences(state string, found *install.Inspection, most int) (checks []Check) {
	add := func(verdict, fact, hint string) { checks = append(checks, ofInstalled(verdict, fact, hint)) }
	if found.Interrupted {
		add(Warn, "a command that changed what is installed was interrupted",
			"to undo its changes run: skillsd sync")
	}
	for _, p := range found.Problems[:min(len(found.Problems), most)] {
		fact := report.JoinPath(p.Name, p.Path) + ": " + p.What
		switch p.Kind {
		case install.ProblemEarlier:
			add(Warn, fact, "run: skillsd sync, or where that cannot get it: skillsd sync --drop-earlier")
		case install.ProblemStray:
			add(Fail, fact, "it was not installed; remove it: rm -r "+
				report.ShellLine(filepath.Join(state, filepath.FromSlash(p.Dir))))
		default:
			add(Fail, fact, "run: skillsd sync")
		}
	}
	if more := len(found.Problems) - most; more > 0 {
		add(Fail, report.Plural(more, "problem")+" more", "run: skillsd doctor --verbose")
	}
	return checks
}

// waiting returns a check for each skill that waits for the user, as a whole or with an update.
func waiting(state string, lock *install.Lock) (checks []Check) {
	held := installing.ReadHeld(state, lock)
	for _, name := range slices.Sorted(maps.Keys(held)) {
		checks = append(checks, ofInstalled(Warn, name+": "+report.Printable(held[name].Text()),
			held[name].Hint(name)))
	}
	for _, e := range lock.Skills {
		if e.Quarantined() {
			checks = append(checks, ofInstalled(Warn,
				e.Name+" is not served: it "+report.Printable(report.Reasons(e.Verdict, e.Why)),
				installing.HintQuarantined(e)))
		}
	}
	return checks
}

// untrusted returns a check for each served skill that the trusted signers would not admit now.
func (o *Doctor) untrusted(lock *install.Lock) (checks []Check) {
	admit, err := o.Process.Admit()
	if err != nil {
		wrong, ok := errors.AsType[*exit.Error](err)
		if !ok {
			return nil
		}
		return []Check{ofInstalled(Fail, "nothing can be installed: "+err.Error(), wrong.Hint)}
	}
	for _, e := range lock.Skills {
		_, refused := admit(e.Origin)
		if refused == nil || !e.Served() {
			continue
		}
		checks = append(checks, ofInstalled(Warn,
			e.Name+" is served and would not be installed: "+report.Printable(refused.Error()),
			"it gets no updates; ask its publisher for a signature, name who signed in trust.signers, "+
				"or remove it: skillsd remove "+report.ShellLine(e.Name)))
	}
	return checks
}

// installed returns the state directory and the lock file of the installed skills. The lock file is empty if
// it cannot be read.
func (o *Doctor) installed() (state string, lock *install.Lock) {
	state, err := o.Process.StateDir()
	if err != nil {
		return state, &install.Lock{}
	}
	// The check of the installed skills reports an error of this file.
	lock, err = install.ReadLock(install.LockFile(state))
	if err != nil {
		return state, &install.Lock{}
	}
	return state, lock
}

// checkVerifier reports whether the identities of trusted signers can be verified.
func (o *Doctor) checkVerifier() []Check {
	trust, err := o.Process.Trust()
	identity := func(s policy.TrustedSigner) bool { return signed.Signer(s.Signer).IsIdentity() }
	if err != nil || !slices.ContainsFunc(trust.Signers, identity) {
		// The check of the installed skills reports the error.
		return nil
	}
	program, err := o.Process.VerifierProgram()
	if err != nil {
		return []Check{warn("installed", "nothing counts as signed by the identities of trust.signers: "+
			report.Printable(err.Error()), "see `skillsd help install`")}
	}
	return []Check{ok("installed", program+" verifies the identities of trust.signers")}
}
