package installing

import (
	"context"
	"log/slog"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/store"
)

// CheckTiers rejects a lock file that would raise the trust in skills above the trust on this machine. Trust
// depends on the content and its source.
func CheckTiers(p *config.Process, file string, here, there *install.Lock) error {
	admit, err := p.Admit()
	if err != nil {
		return err
	}
	for _, e := range there.Skills {
		known := here.Find(e.Name)
		// A name proves nothing, and a file may claim any source for stored content, and any commit for a
		// source. A smaller tier is more trusted.
		trusted := known != nil && known.Tier <= e.Tier && known.Tree == e.Tree && known.Origin.Same(e.Origin)
		// A sync verifies the signature, so the tier of its signer in the configuration applies.
		if tier, err := admit(e.Origin); err == nil && e.Origin.Signer != "" && tier <= e.Tier {
			trusted = true
		}
		if e.Tier != skills.LeastTrusted() && !trusted {
			hint := "with --trust-tiers it is: " +
				report.ShellLine("skillsd", "sync", "--trust-tiers", file)
			return exit.Usagef(hint, "%s is not to be trusted as %s because a file says so", e.Name, e.Tier)
		}
	}
	return nil
}

// Publish makes the served installed skills the content of a cluster's catalogue, and returns their lock file
// and its digest. Skills that come from a program are left out, see [install.Entry.FromProgram]. If a file
// differs from the lock file, nothing is published.
//
// Errors: *exit.Error.
func Publish(
	ctx context.Context, i *install.Installer, trees *store.Store, o *config.Cluster, logger *slog.Logger,
) (lock *install.Lock, sum digest.Digest, err error) {
	// Every server of the cluster would serve what is published here, so changed files must not get there.
	problems, _, err := i.Verify(ctx)
	lock = i.Lock().Filter(func(e *install.Entry) bool {
		// A lock file with a program keeps all other skills from being installed elsewhere.
		return e.Served() && !e.FromProgram()
	})
	switch {
	case err != nil:
		return nil, "", Failure(err)
	case len(problems) > 0:
		return nil, "", exit.Errorf(exit.Problems, "`skillsd doctor` lists them, and prints what to do",
			"%s with what is installed, so that nothing is published: %s %s",
			report.Plural(len(problems), "problem"), problems[0].Name, problems[0].What)
	case len(lock.Skills) == 0:
		return nil, "", exit.Usagef("`skillsd install` installs them, and writes skillsd.lock",
			"no installed skill is served, so that there is nothing to publish")
	}
	catalogue, err := cluster.OpenCatalogue(ctx, o, true, logger)
	if err != nil {
		return nil, "", err
	}
	defer catalogue.Close()
	sum, err = catalogue.Publish(ctx, lock, trees)
	if err != nil {
		return nil, "", Failure(err)
	}
	return lock, sum, nil
}
