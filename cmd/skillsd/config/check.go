package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// refuse reports a problem at the place of a key.
func (d *decoder) refuse(key, format string, args ...any) {
	d.problems = append(d.problems, Problem{At: d.places[key], Text: key + ": " + fmt.Sprintf(format, args...)})
}

// checkKeys holds what was read against the rules that no type tells.
func (d *decoder) checkKeys(keys *Keys) {
	for i, root := range keys.Roots {
		if _, err := skills.ParseRoot(root.text()); err != nil {
			d.refuse(fmt.Sprintf("roots[%d]", i), "%s", err)
		}
	}
	for name, secret := range keys.Secrets {
		key := "secrets." + name
		if err := policy.CheckVariable(name); err != nil {
			d.refuse(key, "%s", err)
		}
		if (secret.Env == "") == (secret.File == "") {
			d.refuse(key, "needs either env, a variable of the server, or file")
		}
	}
	d.checkAllow(keys)
	for _, profile := range keys.PolicyProfiles() {
		d.checkProfile("profiles."+profile.Name, profile)
	}
	for name, number := range map[string]int64{
		"timeout": int64(keys.Limits.Timeout), "cpu": int64(keys.Limits.CPU), "memory": int64(keys.Limits.Memory), "files": int64(keys.Limits.Files),
		"pids": int64(keys.Limits.PIDs), "inodes": int64(keys.Limits.Inodes), "concurrent": int64(keys.Limits.Concurrent),
	} {
		if err := checkLimit(name, number); err != nil {
			d.refuse("limits."+name, "%s", err)
		}
	}
}

func (d *decoder) checkAllow(keys *Keys) {
	first := map[string]policy.Entry{}
	for i, allowed := range keys.Allow {
		key := fmt.Sprintf("allow[%d]", i)
		entry, err := allowed.Entry()
		if err == nil {
			_, err = policy.NewAllowlist([]policy.Entry{entry})
		}
		if err != nil {
			d.refuse(key, "%s", entryReason(err))
			continue
		}
		for _, name := range allowed.Secrets {
			if _, ok := keys.Secrets[name]; !ok {
				names := slices.Collect(maps.Keys(keys.Secrets))
				d.refuse(key, "no secret %s stands in secrets%s", name, DidYouMean(name, names))
			}
		}
		// Entries of one script and content must agree; comparing all at once would be quadratic.
		if other, twice := first[entry.Spec()]; twice {
			if _, err := policy.NewAllowlist([]policy.Entry{other, entry}); err != nil {
				d.refuse(key, "%s", entryReason(err))
			}
			continue
		}
		first[entry.Spec()] = entry
	}
}

// entryReason is the reason without the entry, whose place is told beside it.
func entryReason(err error) string {
	if wrong, ok := errors.AsType[*policy.EntryError](err); ok {
		return fmt.Sprintf("%s: %s", Clip(wrong.Spec), wrong.Reason)
	}
	return err.Error()
}

// Entry is the entry of the allowlist that the key describes.
func (k *AllowKey) Entry() (policy.Entry, error) {
	entry, err := policy.ParseEntry(k.Script)
	if err != nil {
		return entry, err
	}
	entry.Tree = digest.Digest(k.Tree)
	entry.Network, entry.Env, entry.Secrets = k.Network, k.Env, k.Secrets
	entry.Execution = k.Execution
	entry.Release, entry.Approve, entry.Target = policy.Release(k.Release), policy.Approve(k.Approve), policy.Target(k.Target)
	entry.Workspace, entry.Timeout, entry.Memory = k.Workspace, time.Duration(k.Timeout), int64(k.Memory)
	return entry, nil
}

// checkProfile reports what is wrong with the items of a profile, else what is wrong with it as a whole.
func (d *decoder) checkProfile(key string, profile policy.Profile) {
	before := len(d.problems)
	for i, path := range profile.Skills {
		if clean, err := skills.CleanPath(path); err != nil || clean != path {
			d.refuse(fmt.Sprintf("%s.skills[%d]", key, i), "%q is no path of a skill", Clip(path))
		}
	}
	for i, script := range profile.Scripts {
		entry, err := policy.ParseEntry(script)
		if err != nil || entry.Spec() != script || entry.Pin != "" {
			d.refuse(fmt.Sprintf("%s.scripts[%d]", key, i), "%q is not SKILL:scripts/PATH", Clip(script))
		}
	}
	if len(d.problems) > before {
		return
	}
	if !profileName.MatchString(profile.Name) {
		d.refuse(key, "a name has letters, digits, dots, hyphens and underscores")
	} else if err := (policy.Config{Profiles: []policy.Profile{profile}}).Check(); err != nil {
		d.refuse(key, "%s", err)
	}
}
