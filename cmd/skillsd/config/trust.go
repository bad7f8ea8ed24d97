package config

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/source/oci"
	"github.com/skillsd/skillsd/skills/source/signed"
)

// Trust returns whose signatures of installed skills count. It reads their keys and certificates.
//
// Errors: *exit.Error.
func (p *Process) Trust() (policy.Trust, error) {
	trust := policy.Trust{Required: p.Cfg.Keys.Required}
	for _, name := range slices.Sorted(maps.Keys(p.Cfg.Keys.Signers)) {
		key := p.Cfg.Keys.Signers[name]
		tier, err := skills.ParseTier(cmp.Or(key.Tier, skills.LeastTrusted().String()))
		by := signed.Signer("")
		if err == nil {
			by, err = readSigner("config", key.SignedBy)
		}
		if err != nil {
			return trust, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("trust.signers.%s: %w", name, err),
				Hint: "see `skillsd config schema`"}
		}
		trust.Signers = append(trust.Signers,
			policy.TrustedSigner{Name: name, Signer: string(by), Tier: tier, Sources: key.Sources})
	}
	return trust, nil
}

// Admit returns the decision of the configuration for [install.Config].
//
// Errors: *exit.Error.
func (p *Process) Admit() (func(from install.Origin) (skills.Tier, error), error) {
	trust, err := p.Trust()
	return func(from install.Origin) (skills.Tier, error) {
		return trust.Admit(from.Source, string(from.Signer))
	}, err
}

// RegistryLogin returns the logins of Docker's configuration.
func (p *Process) RegistryLogin() oci.Login {
	dir, ok := p.Env("DOCKER_CONFIG")
	if !ok || dir == "" {
		home, _ := p.Env("HOME")
		if home == "" {
			home, _ = p.Env("USERPROFILE")
		}
		dir = filepath.Join(home, ".docker")
	}
	return oci.DockerLogin(filepath.Join(dir, "config.json"))
}
