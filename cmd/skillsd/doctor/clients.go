package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
)

// checkClients warns of settings by which a client refuses the tools of a server that it starts, and of
// skills that it would be offered twice: it loads the skill itself, and its server serves it.
func (o *Doctor) checkClients(ctx context.Context) (checks []Check) {
	cwd, err := os.Getwd()
	if err != nil {
		// Without a working directory, no directory below it is served.
		return nil
	}
	for _, client := range clients.All() {
		var own []string
		for _, dir := range client.OwnSkills(o.Process.Env, cwd) {
			own = append(own, config.Resolved(dir))
		}
		started := client.Commands(o.Process.Env)
		names := make([]string, 0, len(started))
		for name := range started {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			for _, found := range client.DeniedTools(ctx, o.Process.Env, name) {
				checks = append(checks, warn("client", found, "remove that rule to use skills"))
			}
			// The client starts a server with flags of its own, in addition to the configuration.
			served := o.Serve.Roots
			served.Specs = append(clients.FlagValues(started[name], "skills-root"), served.Specs...)
			served.Client = clients.FlagValue(started[name], "client")
			served.NoDefaults = served.NoDefaults || clients.IsSwitchedOn(started[name], "no-default-roots")
			roots, err := served.Given(o.Process)
			if err != nil {
				// The check of the roots reports it.
				continue
			}
			roots = slices.DeleteFunc(roots, func(root skills.Root) bool {
				return !slices.Contains(own, config.Resolved(root.Dir))
			})
			for i := range roots {
				snapshot, err := skills.Scan(ctx, roots[i:i+1], served.ScanOptions())
				if err != nil || len(snapshot.Skills) == 0 {
					continue
				}
				hint := "run: " + report.ShellLine("skillsd", "setup", client.Name, "--write", "--name",
					name) +
					", with the flags of serve behind --"
				if len(served.Specs) > 0 {
					hint = "leave it out of roots and --skills-root, or move the skills that only skillsd " +
						"is to serve"
				}
				checks = append(checks, warn("client", fmt.Sprintf(
					"%s loads %s of %s itself, and its server %s serves them again", client.Title,
					report.Plural(len(snapshot.Skills), "skill"), roots[i].Dir, name), hint))
			}
		}
	}
	return checks
}
