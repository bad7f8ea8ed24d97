package main

import (
	"maps"
	"slices"
)

// checkConfiguration says which file was read, and which variables and secrets that its entries hand
// to scripts cannot be had. usable tells whether serve takes it.
func (o *doctorOptions) checkConfiguration(usable bool) []check {
	cfg := &o.app.Cfg
	if cfg.File == "" {
		fact := "no file"
		if place, err := o.app.ConfigPlace(); err == nil && place != "" {
			fact = "no file at " + place
		}
		return []check{{Verdict: ok, Area: "configuration", Fact: fact}}
	}
	fact := cfg.File + " is read"
	if usable {
		fact = cfg.File + " can be used"
	}
	checks := []check{{Verdict: ok, Area: "configuration", Fact: fact}}
	secrets, variables := map[string]bool{}, map[string]bool{}
	for _, entry := range cfg.Keys.Allow {
		for _, name := range entry.Secrets {
			secrets[name] = true
		}
		for _, name := range entry.Env {
			variables[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if _, set := o.app.Env(name); !set {
			checks = append(checks, check{Verdict: warn, Area: "configuration", Fact: "scripts are to get the variable " + name + ", which is not set here",
				Hint: "set it where the server is started, or remove it from allow"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if _, err := o.app.Secret(name); err != nil {
			checks = append(checks, check{Verdict: warn, Area: "configuration", Fact: "the secret " + name + " cannot be had: " + err.Error(),
				Hint: "mend its source in secrets; scripts that are to get it do not run"})
		}
	}
	return checks
}
