package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source/signed"
)

// signers returns the signers that an origin may have, and whether one of them is required.
func (a Access) signers(from Origin) (all []signed.Signer, must bool) {
	if from.Signer != "" {
		// A signer in the lock file is required, with the recorded identity if the signer covers several.
		return []signed.Signer{from.Signer.As(from.Identity)}, true
	}
	return a.Offered, false
}

// vouch verifies the signature bundles of a source as a whole, against the fetched digest. A source without a
// bundle, or whose bundles cannot be fetched, may have skills with their own signatures. If a signer is
// required, a bundle by another signer is an error.
func (f *fetched) vouch(ctx context.Context, access Access, bundles func() ([][]byte, error)) error {
	signers, must := access.signers(f.origin)
	if len(signers) == 0 {
		return nil
	}
	found, err := bundles()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.unsigned = err
	if err != nil {
		return nil
	}
	by, identity, err := f.verify(ctx, signers, must, func(by signed.Signer) (string, error) {
		return by.Bytes(ctx, access.Verifier, found, f.origin.Digest)
	})
	unverified, notVerified := errors.AsType[*unverifiedError](err)
	switch {
	case err == nil:
		f.origin.Signer, f.origin.Identity, f.vouched = by, identity, true
	case notVerified:
		f.unsigned = unverified
	case !errors.Is(err, signed.ErrUnsigned):
		return err
	}
	return nil
}

// verify returns the first of some signers whose signature check finds, and the identity if the signer is
// one. must is as [Access.signers] returned it.
//
// Errors: *SourceError if the required signature is invalid, or this machine cannot verify any;
// *unverifiedError if none is required and none verifies; signed.ErrUnsigned if check returns it; errors of
// ctx.
func (f *fetched) verify(
	ctx context.Context, signers []signed.Signer, must bool, check func(by signed.Signer) (string, error),
) (by signed.Signer, identity string, err error) {
	unverified := &unverifiedError{}
	for _, by := range signers {
		identity, err := check(by)
		switch {
		case err == nil:
			return cmp.Or(f.origin.Signer, by), identity, nil
		case ctx.Err() != nil:
			return "", "", ctx.Err()
		case unable(err) != nil:
			return "", "", unable(err)
		case errors.Is(err, signed.ErrUnsigned):
			return "", "", err
		case must:
			return "", "", f.origin.notBy(by, err)
		}
		unverified.add(err)
	}
	return "", "", unverified
}

// unverifiedError reports signatures that do not verify. The source is then treated as unsigned.
type unverifiedError struct{ reasons []string }

func (e *unverifiedError) Error() string {
	return "its signature does not verify: " + strings.Join(e.reasons, "; ")
}

func (e *unverifiedError) add(err error) {
	if !slices.Contains(e.reasons, err.Error()) {
		e.reasons = append(e.reasons, err.Error())
	}
}

// refused returns an error if the configuration requires a signature for the origin.
func (e *unverifiedError) refused(i *Installer, from Origin) error {
	if _, err := i.admit(from); err != nil {
		return refuse("ask its publisher: it may have been changed, or its signer is not in "+
			"trust.signers of the configuration", "%v; %v", err, e)
	}
	return nil
}

// signer returns the signer of a skill, or "" if it is unsigned, and the identity if the signer is one. The
// contents are those without files of a plugin.
//
// Errors: *SourceError if a required signature is missing or invalid; *unverifiedError if no signature is
// required and none of those present verifies; errors of ctx.
func (f *fetched) signer(
	ctx context.Context, c *contents, access Access,
) (by signed.Signer, identity string, err error) {
	signers, must := access.signers(f.origin)
	if f.vouched || len(signers) == 0 {
		return f.origin.Signer, f.origin.Identity, nil
	}
	files := map[string]digest.Digest{}
	for _, file := range c.files() {
		files[file.Path] = file.Digest
	}
	// A bundle in the skill itself signs the digests of its files.
	at := slices.IndexFunc(signed.DirectoryNames, func(name string) bool { return files[name] != "" })
	if at < 0 {
		if must {
			return "", "", f.origin.notBy(signers[0], errors.Join(signed.ErrUnsigned, f.unsigned))
		}
		if unverified, ok := errors.AsType[*unverifiedError](f.unsigned); ok {
			return "", "", unverified
		}
		return "", "", nil
	}
	name := signed.DirectoryNames[at]
	if c.from[name] != "" {
		return "", "", fmt.Errorf("%s: is a link out of the skill", name)
	}
	bundle, err := c.skill.Read(ctx, name, signed.MaxBundle)
	if err != nil {
		return "", "", err
	}
	return f.verify(ctx, signers, must, func(by signed.Signer) (string, error) {
		identity, err := by.Directory(ctx, access.Verifier, bundle.Data, name, files, neverInstalled)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return identity, nil
	})
}

// unable returns an error if this machine cannot verify signatures at all, else nil.
func unable(err error) error {
	if here, ok := errors.AsType[*signed.VerifierError](err); ok {
		return refuse("", "the signer cannot be verified: %s", here.Reason)
	}
	return nil
}

// neverInstalled reports whether a path has a segment that skills ignore, so that a signature need not cover
// it.
func neverInstalled(name string) bool {
	return slices.ContainsFunc(strings.Split(path.Clean(name), "/"), skills.Ignored)
}

// notBy returns the error for a source that lacks a valid signature of a signer.
func (o *Origin) notBy(by signed.Signer, err error) error {
	return refuse("ask its publisher; `skillsd update NAME --signed-by OTHER` takes another signer",
		"%s is not signed by %.500s: %v", o.Source, by,
		strings.ReplaceAll(err.Error(), "\n", "; "))
}

// admit decides whether a skill of an origin may be installed, and at which tier.
//
// Errors: *SourceError.
func (i *Installer) admit(from Origin) (skills.Tier, error) {
	if i.cfg.Admit == nil {
		return skills.LeastTrusted(), nil
	}
	tier, err := i.cfg.Admit(from)
	if err != nil {
		return tier, refuse("ask its publisher for a signature, and name its signer in trust.signers of the "+
			"configuration; for a skill that is installed: skillsd update NAME --signed-by", "%v", err)
	}
	return tier, nil
}

// verified reports whether an installed skill has this tree, from the same verified signer and identity as
// the origin.
func (l *Lock) verified(tree digest.Digest, from Origin) bool {
	same := func(known Origin) bool { return known.Signer == from.Signer && known.Identity == from.Identity }
	return slices.ContainsFunc(l.Skills, func(e *Entry) bool {
		return e.Tree == tree && same(e.Origin) ||
			e.Previous != nil && e.Previous.Tree == tree && same(e.previousOrigin())
	})
}

// SignedBy reports whether the signer of the origin is by, or is covered by it.
func (o Origin) SignedBy(by signed.Signer) bool { return by.Covers(o.Signer.As(o.Identity)) }

// checkSigner returns an error if signer and identity do not fit together.
func (o Origin) checkSigner() error {
	switch {
	case o.Signer != "" && o.Signer.Check() != nil:
		return errors.New("signer: is not a key, an authority or an identity")
	case o.Signer.IsIdentity() != (o.Identity != ""):
		return errors.New("identity: is missing, or has no signer")
	case o.Identity != "" && !o.SignedBy(o.Signer):
		return errors.New("identity: is not covered by the signer")
	}
	return nil
}
