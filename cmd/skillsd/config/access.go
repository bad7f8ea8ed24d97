package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/source/signed"
)

// AccessOptions are the flags of commands that fetch sources.
type AccessOptions struct {
	Insecure, Credentials bool
	Variables, Files      []string
	SignedBy, Issuer      string
	TrustedRoot           string
}

// Register adds the flags, and with signers also those that name the required signer.
func (o *AccessOptions) Register(flags *pflag.FlagSet, signers bool) {
	flags.BoolVar(&o.Insecure, "insecure-transport", false,
		"accept unencrypted http:// and git:// URLs of other machines")
	flags.StringArrayVar(&o.Variables, "token-env", nil,
		"`HOST=VARIABLE`: environment variable with the token for git or files of a host")
	flags.StringArrayVar(&o.Files, "token-file", nil, "`HOST=FILE`: file with the token for a host")
	if signers {
		flags.StringVar(&o.SignedBy, "signed-by", "", "accept only a source, or skills, signed by the "+
			"public key in `FILE`, or by a key that the CA certificate in FILE certified; with --issuer "+
			"an identity instead of a file")
		flags.StringVar(&o.Issuer, "issuer", "", "--signed-by is an identity of the issuer at this "+
			"`URL`, such as https://accounts.google.com")
	}
	flags.StringVar(&o.TrustedRoot, "trusted-root", "", "verify identities with this trusted_root.json of "+
		"Sigstore: `FILE`; only if the configuration has no trust.root")
	flags.BoolVar(&o.Credentials, "credentials", false, "let git ask your credential helper")
}

// Access returns the access that the flags grant. A token is never an argument, because other processes can
// read arguments.
func (o *AccessOptions) Access(p *Process) (install.Access, error) {
	access := install.Access{Insecure: o.Insecure, Credentials: o.Credentials}
	var err error
	switch {
	case o.Issuer != "":
		access.SignedBy, err = readIdentity("signed-by", o.Issuer, o.SignedBy)
	case o.SignedBy != "":
		access.SignedBy, err = readSigner("signed-by", o.SignedBy)
	}
	if err != nil {
		return access, err
	}
	access.Verifier, err = p.verifier(o.TrustedRoot)
	if err != nil {
		return access, err
	}
	trust, err := p.Trust()
	if err != nil {
		return access, err
	}
	// A signature by a key needs no verifier.
	for _, identities := range []bool{false, true} {
		for _, s := range trust.Signers {
			if by := signed.Signer(s.Signer); by.IsIdentity() == identities {
				access.Offered = append(access.Offered, by)
			}
		}
	}
	access.Tokens, err = o.tokens(p)
	return access, err
}

// tokens returns the tokens that the flags name, by host.
func (o *AccessOptions) tokens(p *Process) (map[string]string, error) {
	tokens := map[string]string{}
	add := func(flag, given string, value func(name string) (string, error)) error {
		host, name, ok := strings.Cut(given, "=")
		// A URL in place of the host would be a name that matches no source, and its token would never be
		// used.
		if !ok || host == "" || name == "" || strings.ContainsAny(host, "/@") {
			return exit.Flag(flag, fmt.Errorf("%q is not HOST=NAME, such as git.example.com=%s", given,
				map[string]string{"token-env": "GIT_TOKEN", "token-file": "token.txt"}[flag]))
		}
		token, err := value(name)
		if _, chosen := errors.AsType[*exit.Error](err); err != nil && !chosen {
			err = exit.Flag(flag, err)
		}
		if err != nil {
			return err
		}
		// Names of hosts have no case (RFC 4343).
		tokens[strings.ToLower(host)] = token
		return nil
	}
	for _, given := range o.Variables {
		err := add("token-env", given, func(name string) (string, error) {
			value, _ := p.Env(name)
			return checkToken("the variable "+name, value)
		})
		if err != nil {
			return nil, err
		}
	}
	for _, given := range o.Files {
		err := add("token-file", given, func(name string) (string, error) {
			text, err := ReadOperatorFile("token-file", name, 16<<10)
			if err != nil {
				return "", err
			}
			return checkToken(name, strings.TrimSpace(string(text)))
		})
		if err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// readSigner reads the key, or the certificate of an authority, in the file of a flag.
func readSigner(flag, file string) (signed.Signer, error) {
	text, err := ReadOperatorFile(flag, file, 16<<10)
	if err != nil {
		return "", err
	}
	by, err := signed.Parse(text)
	if err != nil {
		err = exit.Flag(flag, fmt.Errorf("%s %w", file, err))
	}
	return by, err
}

// readIdentity returns the signer with this identity at the issuer.
func readIdentity(flag, issuer, identity string) (signed.Signer, error) {
	by, err := signed.Identity(issuer, identity)
	if err != nil {
		err = exit.Flag(flag, fmt.Errorf("%q of %q %w", Clip(identity), Clip(issuer), err))
	}
	return by, err
}

// checkToken accepts a token that is valid in a header and in the answer of a credential helper.
func checkToken(name, token string) (string, error) {
	odd := func(r rune) bool { return r > unicode.MaxASCII || unicode.IsSpace(r) || unicode.IsControl(r) }
	if token == "" {
		return "", errors.New(name + " is not set, or empty")
	}
	if strings.ContainsFunc(token, odd) {
		return "", errors.New(name + " has white space or characters that are not valid in a token")
	}
	return token, nil
}
