package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/owners"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/source/oci"
	"github.com/skillsd/skillsd/skills/source/signed"
)

// Trust returns the trusted signers of installed skills. It reads their keys and certificates.
//
// Errors: *exit.Error.
func (p *Process) Trust() (policy.Trust, error) {
	trust := policy.Trust{Required: p.Cfg.Keys.Required}
	for _, name := range slices.Sorted(maps.Keys(p.Cfg.Keys.Signers)) {
		key := p.Cfg.Keys.Signers[name]
		// A signature proves who made a skill, not that it is to be trusted more than others.
		tier, err := skills.ParseTier(cmp.Or(key.Tier, skills.LeastTrusted().String()))
		by := signed.Signer("")
		switch {
		case err != nil:
		case key.Identity != "":
			by, err = readIdentity("config", key.Issuer, key.Identity)
		default:
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

// Admit returns the function that decides about the origin of a skill, for [install.Config].
//
// Errors: *exit.Error.
func (p *Process) Admit() (func(from install.Origin) (skills.Tier, error), error) {
	trust, err := p.Trust()
	return func(from install.Origin) (skills.Tier, error) {
		if from.Signer == "" {
			return trust.Admit(from.Source, nil)
		}
		return trust.Admit(from.Source,
			func(by string) bool { return from.SignedBy(signed.Signer(by)) })
	}, err
}

// verifierName is the name of the program that verifies identities.
const verifierName = "skillsd-sigstore"

// verifier returns the verifier of identities with the trusted root of the configuration or, if that is
// empty, with the file root.
//
// Errors: *exit.Error.
func (p *Process) verifier(root string) (*signed.Verifier, error) {
	flag := "trusted-root"
	switch {
	case root != "" && p.Cfg.Keys.TrustedRoot != "":
		// The configured signers are identities under the configured root; another root could map them to
		// other people.
		return nil, exit.Flag(flag, errors.New("cannot be combined with trust.root of the configuration"))
	case root == "":
		flag, root = "config", p.Cfg.Keys.TrustedRoot
	}
	if root == "" {
		return nil, nil
	}
	text, err := ReadOperatorFile(flag, root, signed.MaxRoot)
	if err != nil {
		return nil, err
	}
	// Windows starts no program without the variable of its directory.
	v := &signed.Verifier{Program: p.VerifierProgram, Root: text}
	if dir, ok := p.Env("SYSTEMROOT"); ok {
		v.Env = []string{"SYSTEMROOT=" + dir}
	}
	return v, nil
}

// VerifierProgram returns the program that verifies identities: the one in the configuration, in the
// directory of this program, or in PATH. A program that others can write or replace is refused.
//
// Errors: *signed.VerifierError.
func (p *Process) VerifierProgram() (string, error) {
	program, info, err := findVerifier(p.Cfg.Keys.Verifier)
	if err != nil {
		return "", &signed.VerifierError{Reason: fmt.Sprintf("%s is neither in the directory of skillsd "+
			"nor in PATH: go install github.com/skillsd/skillsd/cmd/%[1]s@latest", verifierName)}
	}
	if hint, err := CheckOwner(program, info); err != nil {
		return "", &signed.VerifierError{Reason: fmt.Sprintf("%s: %v: %s", program, err, hint)}
	}
	// The check above covers the file only; a user who can write to a directory of its path can replace it.
	who, err := owners.New().Path(program)
	if err == nil && len(who) > 0 {
		err = fmt.Errorf("%s can replace it", strings.Join(who, " and "))
	}
	if err != nil {
		return "", &signed.VerifierError{Reason: fmt.Sprintf("%s: %v: restrict write access to the "+
			"directories on its path (chmod go-w, chown)", program, err)}
	}
	return program, nil
}

// findVerifier returns the absolute path of the program that is configured, or else of the one in the
// directory of this program, or else of the one in PATH.
func findVerifier(configured string) (program string, info fs.FileInfo, err error) {
	program = configured
	if program == "" {
		program = besideSelf()
	}
	if program == "" {
		program, err = exec.LookPath(verifierName)
		if err != nil {
			return "", nil, err
		}
	}
	program, err = filepath.Abs(program)
	if err != nil {
		return "", nil, err
	}
	info, err = os.Stat(program)
	return program, info, err
}

// besideSelf returns the path of the verifier in the directory of this program, or "".
func besideSelf() string {
	own, err := os.Executable()
	if err != nil {
		return ""
	}
	// With links resolved, this is the directory that skillsd was installed in.
	if real, err := filepath.EvalSymlinks(own); err == nil {
		own = real
	}
	program, _ := exec.LookPath(filepath.Join(filepath.Dir(own), verifierName))
	return program
}

// RegistryLogin returns the logins in Docker's configuration.
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
