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

// signers returns who may have signed an origin, and whether somebody must have.
func (a Access) signers(from Origin) (all []signed.Signer, must bool) {
	if from.Signer != "" {
		// A lock file that says who signed holds its source to that, whoever else the signer covers.
		return []signed.Signer{from.Signer.As(from.Identity)}, true
	}
	return a.Offered, false
}

// vouch verifies the bundles of a source as a whole, for the digest that was fetched. A source without one
// may have skills that are signed themselves, as those that cannot be fetched may; a bundle of somebody else
// refuses the source if there is one who must have signed it.
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
	unverified := &unverifiedError{}
	for _, by := range signers {
		identity, err := by.Bytes(ctx, access.Verifier, found, f.origin.Digest)
		switch {
		case err == nil:
			f.origin.Signer, f.origin.Identity = cmp.Or(f.origin.Signer, by), identity
			f.vouched = true
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case unable(err) != nil:
			return unable(err)
		case errors.Is(err, signed.ErrUnsigned):
			return nil
		case must:
			return f.origin.notBy(by, err)
		}
		unverified.add(err)
	}
	f.unsigned = unverified
	return nil
}

// unverifiedError is why the signature that there is counts as none.
type unverifiedError struct{ reasons []string }

func (e *unverifiedError) Error() string {
	return "there is a signature, and it does not verify: " + strings.Join(e.reasons, "; ")
}

func (e *unverifiedError) add(err error) {
	if !slices.Contains(e.reasons, err.Error()) {
		e.reasons = append(e.reasons, err.Error())
	}
}

// refused returns an error if a skill must be signed that has such a signature.
func (e *unverifiedError) refused(i *Installer, from Origin) error {
	if _, err := i.admit(from); err != nil {
		return refuse("ask its publisher: somebody may have changed it, or somebody signed it whom "+
			"trust.signers of the configuration does not name", "%v; %v", err, e)
	}
	return nil
}

// signer returns who signed a skill of a source, empty for nobody, and which identity if it is one.
//
// Errors: *SourceError if somebody must have signed it and did not; *unverifiedError, with nobody, if it need
// not be signed and has a signature that does not verify; errors of ctx.
func (f *fetched) signer(
	ctx context.Context, sk *skills.Skill, index *skills.Index, access Access,
) (by signed.Signer, identity string, err error) {
	signers, must := access.signers(f.origin)
	if f.vouched || len(signers) == 0 {
		return f.origin.Signer, f.origin.Identity, nil
	}
	files := map[string]digest.Digest{}
	for _, file := range index.Files {
		files[file.Path] = file.Digest
	}
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
	bundle, err := sk.Read(ctx, name, signed.MaxBundle)
	if err != nil {
		return "", "", err
	}
	unverified := &unverifiedError{}
	for _, by := range signers {
		identity, err := by.Directory(ctx, access.Verifier, bundle.Data, name, files, neverInstalled)
		switch {
		case err == nil:
			return cmp.Or(f.origin.Signer, by), identity, nil
		case ctx.Err() != nil:
			return "", "", ctx.Err()
		case unable(err) != nil:
			return "", "", unable(err)
		case must:
			return "", "", f.origin.notBy(by, fmt.Errorf("%s: %w", name, err))
		}
		unverified.add(fmt.Errorf("%s: %w", name, err))
	}
	return "", "", unverified
}

// unable returns the error of what cannot be verified here, whoever signed it, and nil for any other.
func unable(err error) error {
	if here, ok := errors.AsType[*signed.VerifierError](err); ok {
		return refuse("", "who signed cannot be verified: %s", here.Reason)
	}
	return nil
}

// neverInstalled reports whether a path lies in what no skill has.
func neverInstalled(name string) bool {
	return slices.ContainsFunc(strings.Split(path.Clean(name), "/"), skills.Ignored)
}

// notBy returns the error of what a signer did not sign.
func (o *Origin) notBy(by signed.Signer, err error) error {
	return refuse("ask its publisher; `skillsd update NAME --signed-by OTHER` takes another signer",
		"%s is not signed by %.500s: %v", o.Source, by,
		strings.ReplaceAll(err.Error(), "\n", "; "))
}

// admit decides whether a skill of an origin may be installed.
//
// Errors: *SourceError.
func (i *Installer) admit(from Origin) (skills.Tier, error) {
	if i.cfg.Admit == nil {
		return skills.LeastTrusted(), nil
	}
	tier, err := i.cfg.Admit(from)
	if err != nil {
		return tier, refuse("ask its publisher for a signature, and name who signed in trust.signers of the "+
			"configuration; for a skill that is installed: skillsd update NAME --signed-by", "%v", err)
	}
	return tier, nil
}

// verified reports whether a skill with a tree is installed here whose signer was verified, and is that of
// an origin.
func (l *Lock) verified(tree digest.Digest, from Origin) bool {
	same := func(known Origin) bool { return known.Signer == from.Signer && known.Identity == from.Identity }
	return slices.ContainsFunc(l.Skills, func(e *Entry) bool {
		return e.Tree == tree && same(e.Origin) ||
			e.Previous != nil && e.Previous.Tree == tree && same(e.previousOrigin())
	})
}

// SignedBy reports whether a signer, or one whom they cover, signed what is installed.
func (o Origin) SignedBy(by signed.Signer) bool { return by.Covers(o.Signer.As(o.Identity)) }

// checkSigner returns why who signed cannot be that.
func (o Origin) checkSigner() error {
	switch {
	case o.Signer != "" && o.Signer.Check() != nil:
		return errors.New("signer: is not a key, an authority or an identity")
	case o.Signer.IsIdentity() != (o.Identity != ""):
		return errors.New("identity: is missing, or there is no signer whose identity it is")
	case o.Identity != "" && !o.SignedBy(o.Signer):
		return errors.New("identity: is not one of the signer")
	}
	return nil
}
