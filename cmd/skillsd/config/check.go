package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/sandbox/environment/making"
	"github.com/skillsd/skillsd/sandbox/environment/rootfs"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
	"github.com/skillsd/skillsd/skills/policy"
)

// refuse reports a problem at the position of a key.
func (d *decoder) refuse(key, format string, args ...any) {
	d.problems = append(d.problems, Problem{At: d.positions[key],
		Text: key + ": " + fmt.Sprintf(format, args...)})
}

// check applies the rules that the types of options do not enforce.
func (d *decoder) check(o *Options) {
	for i, spec := range o.Roots.Specs {
		if _, err := skills.ParseRoot(spec); err != nil {
			d.refuse(fmt.Sprintf("roots[%d]", i), "%s", err)
		}
	}
	d.checkSecrets(o)
	d.checkEnvironments(o)
	for _, kind := range slices.Sorted(maps.Keys(o.Index)) {
		if _, err := making.ParseIndex(o.Index[kind]); err != nil {
			d.refuse("index."+kind, "%s", err)
		}
	}
	if slices.Contains(o.Required, "") {
		d.refuse("trust.required", "a prefix is empty; use all for every source")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Signers)) {
		if signer := o.Signers[name]; signer.check(o.TrustedRoot) != nil {
			d.refuse("trust.signers."+name, "%s", signer.check(o.TrustedRoot))
		}
	}
	d.checkAllow(o)
	for _, profile := range o.PolicyProfiles() {
		key := "profiles." + profile.Name
		if !profileName().MatchString(profile.Name) {
			d.refuse(key, "a name consists of letters, digits, dots, hyphens and underscores")
		} else if err := (policy.Config{Profiles: []policy.Profile{profile}}).Check(); err != nil {
			d.refuse(key, "%s", err)
		}
	}
	for _, option := range o.runTable() {
		if option.Part != "" {
			if err := option.checkRange(); err != nil {
				d.refuse(option.Key, "%s", err)
			}
		}
	}
}

func (d *decoder) checkSecrets(o *Options) {
	for name, secret := range o.Secrets {
		key := "secrets." + name
		if err := policy.CheckVariable(name); err != nil {
			d.refuse(key, "%s", err)
		}
		// With two sources it would be a guess which of them has the secret.
		if (secret.Env == "") == (secret.File == "") {
			d.refuse(key, "needs either env, a variable of the server, or file")
		}
	}
}

func (d *decoder) checkEnvironments(o *Options) {
	for _, name := range slices.Sorted(maps.Keys(o.Environments)) {
		e, key := o.Environments[name], "environments."+name
		wrong := making.CheckAsked(e.Python, e.Node)
		_, badRoot := rootfs.ParseSource(e.Root)
		switch {
		case !environment.ValidName(name):
			d.refuse(key, "a name consists of lower-case letters, digits and single hyphens")
		case wrong != nil:
			d.refuse(key, "%s", wrong)
		case e.Root != "" && (len(e.Python)+len(e.Node) > 0 || e.Base != ""):
			d.refuse(key, "a root file system has no packages: give those to another environment, with "+
				"base: %s", name)
		case e.Root != "" && badRoot != nil:
			d.refuse(key, "root: %s", badRoot)
		case e.Base != "" && o.Environments[e.Base].Root == "":
			d.refuse(key, "base: environment %s has no root file system", shown(e.Base))
		}
	}
}

// alone returns an entry of the file, if it is valid in a list of its own.
func alone(key AllowKey) (policy.Entry, error) {
	entry, err := key.Entry()
	if err != nil {
		return entry, err
	}
	_, err = policy.NewAllowlist([]policy.Entry{entry})
	return entry, err
}

func (d *decoder) checkAllow(o *Options) {
	first := map[string]policy.Entry{}
	for i := range o.Allow {
		key := fmt.Sprintf("allow[%d]", i)
		// Each entry is checked by itself, so that the message has the line of the wrong one.
		entry, err := alone(o.Allow[i])
		if err != nil {
			d.refuse(key, "%s", entryReason(err))
			continue
		}
		for _, name := range entry.Secrets {
			if _, ok := o.Secrets[name]; !ok {
				names := slices.Collect(maps.Keys(o.Secrets))
				// Without a similar name the text may be a secret in place of its name, which shown leaves
				// out.
				hint := DidYouMean(name, names)
				if hint == "" {
					name = strings.Trim(shown(name), `"`)
				}
				d.refuse(key, "there is no secret %s in secrets%s", name, hint)
			}
		}
		if _, ok := o.Environments[entry.Environment]; !ok && entry.Environment != "" {
			d.refuse(key, "there is no environment %s in environments%s", entry.Environment,
				DidYouMean(entry.Environment, slices.Collect(maps.Keys(o.Environments))))
		}
		// Entries of one script and content must agree; comparing all of them would be quadratic.
		if other, duplicate := first[entry.Spec()]; duplicate {
			if _, err := policy.NewAllowlist([]policy.Entry{other, entry}); err != nil {
				d.refuse(key, "%s", entryReason(err))
			}
			continue
		}
		first[entry.Spec()] = entry
	}
}

// entryReason returns the reason and the script of an entry; its position is added by the caller.
func entryReason(err error) string {
	if wrong, ok := errors.AsType[*policy.EntryError](err); ok {
		spec := Clip(wrong.Spec)
		if !strings.Contains(spec, ":") {
			spec = strings.Trim(shown(wrong.Spec), `"`)
		}
		return fmt.Sprintf("%s: %s", spec, wrong.Reason)
	}
	return err.Error()
}

// Entry returns the entry of the allowlist that the key describes.
func (k *AllowKey) Entry() (policy.Entry, error) {
	entry, err := policy.ParseEntry(k.Script)
	if err != nil {
		return entry, err
	}
	entry.Tree = digest.Digest(k.Tree)
	entry.Network, entry.Env, entry.Secrets = k.Network, k.Env, k.Secrets
	entry.Execution, entry.SearchPath = cmp.Or(k.Execution, entry.Execution), k.Path
	if entry.PinScript && k.Pin == "tree" {
		return entry, &policy.EntryError{Spec: k.Script,
			// The two forms contradict each other, and the weaker one must not win silently.
			Reason: "pin is tree, but the script has pin=script"}
	}
	entry.PinScript = entry.PinScript || k.Pin == "script"
	if k.Ask != "" && k.Approve != "" && k.Ask != k.Approve {
		return entry, &policy.EntryError{Spec: k.Script,
			Reason: "ask is " + k.Ask + " and approve is " + k.Approve + ": keep ask and remove approve"}
	}
	entry.Release, entry.Ask = policy.Release(k.Release), policy.Ask(cmp.Or(k.Ask, k.Approve))
	entry.Target, entry.Environment = policy.Target(k.Target), k.Environment
	entry.Workspace, entry.Timeout, entry.Memory = k.Workspace, time.Duration(k.Timeout), int64(k.Memory)
	return entry, nil
}

// PolicyProfiles returns the profiles of the file, sorted by name.
func (o *Options) PolicyProfiles() []policy.Profile {
	var profiles []policy.Profile
	for _, name := range slices.Sorted(maps.Keys(o.Profiles)) {
		p := o.Profiles[name]
		profiles = append(profiles, policy.Profile{
			Name: name, Skills: p.Skills, Scripts: p.Scripts, Tools: p.Tools, Target: policy.Target(p.Target),
			Activate: p.Activate,
		})
	}
	return profiles
}

// PolicyPrincipals returns the principals of the file. The names of principals with trusted evidence are a
// separate argument, because the command line can add to them.
func (o *Options) PolicyPrincipals(evidence []string) map[string]policy.Principal {
	principals := map[string]policy.Principal{}
	for name, p := range o.Principals {
		principals[name] = policy.Principal{Name: name, Profile: p.Profile}
	}
	for _, name := range evidence {
		p := principals[name]
		p.Name, p.Evidence = name, true
		principals[name] = p
	}
	return principals
}

// configName matches any name; the packages that use a name have stricter rules.
var configName = pattern.New(`^[!-~]{1,200}$`)

// profileName matches the name of a profile, which clients may send.
var profileName = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
