package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// machineSetup is `skillsd setup` without the name of a client. It looks at the machine, asks at most two
// questions and does the rest.
type machineSetup struct {
	app   *app
	cmd   *cobra.Command
	given *setupOptions // the flags that setup has with the name of a client too
	yes   bool          // connect all clients, take over no skills, ask once
	files bool          // scripts see the project in which a client works

	found  []*clients.Client  // on this machine
	fresh  []*clients.Client  // those of them to connect
	own    []clients.OwnSkill // skills that these clients load themselves
	linked []string           // links of such skills that lead to other directories
	record *clients.Record
	state  string

	before map[*clients.Client]map[string][]string // the command of each entry before this setup, by name
}

// configure reads the configuration, which setup with the name of a client does not need.
func (s *machineSetup) configure() (err error) {
	a := s.app
	if err := a.configure(s.cmd); err != nil {
		return err
	}
	s.state, err = a.StateDir()
	if err != nil {
		return err
	}
	return a.CheckDirs()
}

// open locks and reads the record of earlier setups.
func (s *machineSetup) open(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(s.state, 0o700); err != nil {
		return nil, exit.Directory("state directory", "--state", err)
	}
	unlock, err = config.LockEdit(ctx, clients.RecordFile(s.state))
	if err != nil {
		return nil, err
	}
	s.record, err = clients.OpenRecord(s.state)
	if err != nil {
		unlock()
		return nil, exit.Errorf(exit.Failure, "repair or remove "+clients.RecordFile(s.state), "%w", err)
	}
	return unlock, nil
}

func (s *machineSetup) run(ctx context.Context, serveArgs []string) error {
	if err := s.check(serveArgs); err != nil {
		return err
	}
	s.look()
	s.print(ctx)
	if err := s.prepare(len(serveArgs) > 0); err != nil {
		return err
	}

	chosen := s.fresh
	if !s.yes && len(s.fresh) > 0 {
		var err error
		chosen, err = s.choose(ctx)
		if err != nil || len(chosen) == 0 {
			return err
		}
	}
	s.own = s.adoptable(chosen)
	adopts, err := s.asksToAdopt(ctx)
	if err != nil {
		return err
	}
	if len(chosen) == 0 && !adopts {
		for _, client := range s.found {
			s.app.warnDenied(ctx, client, s.given.Name)
		}
		s.app.notef("All of them are connected; to write an entry again: skillsd setup CLIENT --write")
		s.next(s.found)
		return nil
	}
	return s.apply(ctx, chosen, adopts, serveArgs)
}

// apply connects clients and, if adopts is set, takes over their skills.
func (s *machineSetup) apply(
	ctx context.Context, chosen []*clients.Client, adopts bool, serveArgs []string,
) error {
	unlock, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	connected, failed := s.connectAll(ctx, chosen, serveArgs)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case adopts && failed != nil:
		// The client that is not connected would have its skills no longer.
		s.app.notef("The skills stay where they are until each of these clients is connected.")
	case adopts:
		failed = s.adopt(ctx)
	}
	if len(connected) > 0 || len(chosen) == 0 {
		s.next(slices.Concat(connected, s.found))
	}
	if failed != nil {
		return &exit.Error{Code: exit.Problems} // each was printed
	}
	return nil
}

// check refuses what no setup of a machine does, and reads the configuration.
func (s *machineSetup) check(serveArgs []string) error {
	if err := s.app.byUser("`skillsd setup`"); err != nil {
		return err
	}
	if s.given.URL != "" {
		return exit.Usagef("name the client: skillsd setup CLIENT --http "+report.ShellLine(s.given.URL)+
			" --write", "--http needs the name of a client")
	}
	if err := s.configure(); err != nil {
		return err
	}
	// A wrong flag of serve would be reported for each client.
	_, err := s.given.entry(serveArgs)
	return err
}

// prepare refuses a setup without clients or without a terminal for its questions. Flags, also those of
// serve, may change the entries of clients that are connected.
func (s *machineSetup) prepare(serveFlags bool) error {
	if len(s.found) == 0 {
		return exit.Errorf(exit.Problems,
			"install a client, or print the entry for yours: skillsd setup --print; without a client, "+
				"install a skill and run its scripts yourself: skillsd install SOURCE, then skillsd run "+
				"SKILL SCRIPT", "no client was found")
	}
	flags := s.cmd.Flags().NFlag()
	if s.yes {
		flags--
	}
	if flags > 0 || serveFlags {
		s.fresh = s.found
	}
	if !s.yes && !s.app.hasTerminal() {
		return exit.Errorf(exit.Failure,
			"to connect these clients without questions: skillsd setup --yes; one of them: skillsd setup "+
				s.found[0].Name+" --write", "nothing was changed: the questions need a terminal")
	}
	return nil
}

// connectAll connects clients, and prints why one could not be. It returns those that are connected.
func (s *machineSetup) connectAll(
	ctx context.Context, chosen []*clients.Client, serveArgs []string,
) (connected []*clients.Client, failed error) {
	for _, client := range chosen {
		err := s.connect(ctx, client, serveArgs)
		if err == nil {
			connected = append(connected, client)
			continue
		}
		s.app.say("error", client.Title+": "+err.Error())
		if wrong, ok := errors.AsType[*exit.Error](err); ok && wrong.Hint != "" {
			s.app.say("hint", wrong.Hint)
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			break
		}
		// One client that fails does not keep the others from being connected.
	}
	return connected, failed
}

// look finds the clients and their skills.
func (s *machineSetup) look() {
	s.before = map[*clients.Client]map[string][]string{}
	var dirs []string
	for _, client := range clients.All() {
		if !client.Found(s.app.Env, exec.LookPath) {
			continue
		}
		s.found = append(s.found, client)
		s.before[client] = client.Commands(s.app.Env)
		if !s.isConnected(client) {
			s.fresh = append(s.fresh, client)
		}
		dirs = append(dirs, client.OwnSkills(s.app.Env, "")...)
	}
	s.own, s.linked = clients.FindSkills(dirs)
}

// isConnected reports whether a client started skillsd before this setup, with any entry.
func (s *machineSetup) isConnected(client *clients.Client) bool { return len(s.before[client]) > 0 }

// print prints what was found.
func (s *machineSetup) print(ctx context.Context) {
	a := s.app
	titles := make([]string, len(s.found))
	for i, client := range s.found {
		titles[i] = client.Title
		if s.isConnected(client) {
			titles[i] += " (connected)"
		}
	}
	if len(titles) == 0 {
		titles = []string{"none"}
	}
	a.notef("Clients  %s", strings.Join(titles, ", "))
	var dirs []string
	isLink := func(skill clients.OwnSkill) bool { return skill.Link }
	for _, group := range grouped(slices.DeleteFunc(slices.Clone(s.own), isLink)) {
		var names []string
		for _, skill := range group {
			names = append(names, skill.Name)
		}
		dirs = append(dirs, fmt.Sprintf("%d in %s (%s)", len(names), report.Printable(group[0].Dir),
			first(names, 8)))
	}
	if lock, err := a.readLock(); err == nil && len(lock.Skills) > 0 {
		dirs = append(dirs, fmt.Sprintf("%d installed with skillsd", len(lock.Skills)))
	}
	if len(dirs) == 0 {
		dirs = []string{"none yet"}
	}
	a.notef("Skills   %s", strings.Join(dirs, ", "))
	if len(s.linked) > 0 {
		a.notef("         links to other directories stay there: %s", first(s.linked, 5))
	}
	backend, problem := a.sandbox(ctx)
	if problem != "" {
		a.notef("Scripts  cannot run here: %s; `skillsd doctor` prints a solution. Skills can be read\n",
			report.Printable(problem))
		return
	}
	a.notef("Scripts  can run here, each in a sandbox (%s)\n", backend)
}

// first returns the first names of a list, most at most, and the number of the others.
func first(names []string, most int) string {
	shown := names[:min(len(names), most)]
	if len(shown) < len(names) {
		shown = append(slices.Clone(shown), fmt.Sprintf("and %d more", len(names)-len(shown)))
	}
	return report.Printable(strings.Join(shown, ", "))
}

// choose asks which clients to connect.
func (s *machineSetup) choose(ctx context.Context) ([]*clients.Client, error) {
	const answers = " [y, n, or some of the names] "
	var names []string
	for _, client := range s.fresh {
		names = append(names, client.Name)
	}
	all := strings.Join(names, ", ")
	prompt := s.question(all) + answers
	for {
		word, err := s.app.typed(ctx, prompt)
		if err != nil {
			return nil, err
		}
		switch word {
		case "y", "yes":
			return s.fresh, nil
		case "", "n", "no":
			s.app.notef("nothing was changed")
			return nil, nil
		}
		chosen, unknown := s.named(strings.Fields(strings.ReplaceAll(word, ",", " ")))
		if unknown == "" {
			return chosen, nil
		}
		prompt = fmt.Sprintf("%q is none of %s", config.Clip(unknown), all) + answers
	}
}

// question asks whether to connect the clients with names, and describes how scripts run then.
func (s *machineSetup) question(names string) string {
	prompt := "Connect " + names + " to skillsd?\n"
	if !slices.ContainsFunc(s.fresh, func(c *clients.Client) bool { return !s.isConnected(c) }) {
		prompt = "Write the entry of " + names + " again, with these flags?\n"
	}
	prompt += "Before a script runs, skillsd asks you and shows its arguments and files."
	at := slices.IndexFunc(s.fresh, func(c *clients.Client) bool { return c.Project })
	if at >= 0 {
		prompt += "\n" + s.fresh[at].Title + " then does not ask a second time."
	}
	mute := slices.DeleteFunc(slices.Clone(s.fresh), func(c *clients.Client) bool {
		return c.Asks != clients.No
	})
	if len(mute) > 0 {
		prompt += "\nThrough " + titlesOf(mute) + " it cannot ask: a script runs there only if you\n" +
			"allow it to run without a question, or approve the call in a terminal."
	}
	if s.files {
		prompt += "\nScripts that you allow see the project directory in which the client works;\n" +
			"`skillsd undo` returns the files that they change there. The client sees their\n" +
			"output."
	}
	return prompt
}

// titlesOf returns the titles of some clients, as a part of a sentence.
func titlesOf(some []*clients.Client) string {
	titles := make([]string, len(some))
	for i, c := range some {
		titles[i] = c.Title
	}
	return strings.Join(titles, ", ")
}

// named returns the found clients with names, and the first name that none has.
func (s *machineSetup) named(names []string) (chosen []*clients.Client, unknown string) {
	for _, name := range names {
		at := slices.IndexFunc(s.fresh, func(c *clients.Client) bool { return c.Name == name })
		if at < 0 {
			return nil, name
		}
		chosen = append(chosen, s.fresh[at])
	}
	return chosen, ""
}

// adoptable returns the skills that can be taken over. A client that is not connected keeps those that it
// loads.
func (s *machineSetup) adoptable(chosen []*clients.Client) []clients.OwnSkill {
	var dirs, kept []string
	var alone []*clients.Client
	for _, client := range s.found {
		own := client.OwnSkills(s.app.Env, "")
		if s.isConnected(client) || slices.Contains(chosen, client) {
			dirs = append(dirs, own...)
			continue
		}
		kept = append(kept, own...)
		if theirs, _ := clients.FindSkills(own); len(theirs) > 0 {
			alone = append(alone, client)
		}
	}
	if len(alone) > 0 && !s.yes {
		s.app.notef("The skills of %s stay where they are, since it is not connected.", titlesOf(alone))
	}
	isKept := func(dir string) bool { return slices.Contains(kept, dir) }
	found, _ := clients.FindSkills(slices.DeleteFunc(dirs, isKept))
	return found
}

// asksToAdopt asks whether to take over the skills that the clients load themselves.
func (s *machineSetup) asksToAdopt(ctx context.Context) (bool, error) {
	count := clients.CountSkills(s.own)
	if count == 0 || s.yes {
		return false, nil
	}
	space := ""
	if len(s.fresh) > 0 {
		space = "\n" // another question came before
	}
	where := report.Printable(clients.AdoptedDir(s.state))
	if count == 1 {
		return s.app.confirm(ctx, space+"Take over 1 skill, so that every client uses it through skillsd?\n"+
			"Until then a client loads it itself, and runs its scripts without a sandbox.\n"+
			"The directory moves to "+where+";\n`skillsd setup --undo` moves it back.")
	}
	return s.app.confirm(ctx, space+"Take over "+report.Plural(count, "skill")+", so that every client "+
		"uses them through skillsd?\nUntil then a client loads them itself, and runs their scripts "+
		"without a sandbox.\nThe directories move to "+where+
		";\n`skillsd setup --undo` moves them back.")
}

// connect writes the entry of one client, which starts skillsd serve with the given arguments. The question
// was about the client's permissions too, which --yes leaves out.
func (s *machineSetup) connect(ctx context.Context, client *clients.Client, serveArgs []string) error {
	opts := &setupOptions{app: s.app, client: client, Name: s.given.Name, Files: s.files, Write: true,
		Trust: client.Trust, Permit: !s.yes, Settled: true}
	s.app.notef("\n%s", client.Title)
	before := clients.LookAt(client.Files(s.app.Env))
	err := opts.run(ctx, serveArgs)
	// After a failure too: the client's own command may have written the entry before it failed or was
	// interrupted.
	made := clients.Connection{Client: client.Name, Entry: opts.Name, Permitted: opts.permitted,
		Was: s.before[client][opts.Name]}
	return errors.Join(err, s.record.Connected(made, before))
}

// next prints how to go on.
func (s *machineSetup) next(chosen []*clients.Client) {
	a := s.app
	lock, err := a.readLock()
	if err != nil {
		lock = &install.Lock{} // the commands that need it report the error
	}
	if len(lock.Skills) == 0 {
		a.notef("\nNext, install a skill, for example: skillsd install anthropics/skills pdf")
	}
	sentence := "Which skills do you have?"
	served := slices.DeleteFunc(slices.Clone(lock.Skills), func(e *install.Entry) bool { return !e.Served() })
	allowed, err := a.serveOptions().Allowlist()
	at := slices.IndexFunc(served, func(e *install.Entry) bool {
		return err == nil && slices.ContainsFunc(allowed.Entries(), func(a policy.Entry) bool {
			return a.Skill == e.Name
		})
	})
	if len(served) > 0 {
		sentence = "Use the " + report.Printable(served[max(at, 0)].Name) + " skill. What can it do for me?"
	}
	undo := "skillsd setup --undo"
	if a.State != "" {
		undo += " --state " + report.Printable(report.ShellLine(a.State))
	}
	a.notef("\nStart %s in one of your projects, and type:\n\n  %s\n\nTo let a script of a skill run: "+
		"skillsd allow SKILL:SCRIPT\nTo undo this setup:             %s", chosen[0].Title, sentence, undo)
}

// skillsIn describes the number of skills that moves are about.
func skillsIn(moves []clients.Move) string {
	skills := slices.DeleteFunc(slices.Clone(moves), clients.Move.IsLink)
	return report.Plural(len(skills), "skill")
}

// undone describes what undo does, in words that follow "would".
func (s *machineSetup) undone() string {
	var names, parts []string
	for _, c := range s.record.Clients {
		names = append(names, c.Client)
	}
	if len(names) > 0 {
		parts = append(parts, "disconnect "+report.Printable(strings.Join(names, ", ")))
	}
	if len(s.record.Moves) > 0 {
		parts = append(parts, "move "+skillsIn(s.record.Moves)+" back")
	}
	return strings.Join(parts, " and ")
}

// forget drops a connection from the record of setups. A later entry of the same name is the user's, and undo
// must not remove it.
func (s *machineSetup) forget(ctx context.Context, client, entry string) error {
	err := s.configure()
	if err != nil || !fsys.Exists(clients.RecordFile(s.state)) {
		return nil // no setup was recorded with this configuration
	}
	unlock, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return s.record.Disconnected(client, entry)
}

// undo reverts the setup: it removes the entries of clients, and moves adopted skills back.
func (s *machineSetup) undo(ctx context.Context) error {
	a := s.app
	if err := a.byUser("`skillsd setup --undo`"); err != nil {
		return err
	}
	if err := s.configure(); err != nil {
		return err
	}
	unlock, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if len(s.record.Clients) == 0 && len(s.record.Moves) == 0 {
		a.notef("there is no setup to undo; to disconnect one client: skillsd setup CLIENT --remove")
		return nil
	}
	does := s.undone()
	if !s.yes && !a.hasTerminal() {
		return exit.Errorf(exit.Failure, "to do it without a question: skillsd setup --undo --yes",
			"nothing was changed: skillsd setup --undo would %s, and asks on a terminal", does)
	}
	_, err = a.confirmed(ctx, s.yes, strings.ToUpper(does[:1])+does[1:]+"?")
	if err != nil {
		return err
	}
	if err := s.removeAdopted(ctx); err != nil {
		return err
	}
	back, failed := s.record.Return(func(clients.Move) bool { return true })
	if len(back) > 0 {
		a.notef("moved %s back", skillsIn(back))
	}
	return errors.Join(failed, s.disconnectAll(ctx))
}

// removeAdopted uninstalls the skills that were taken over.
func (s *machineSetup) removeAdopted(ctx context.Context) error {
	lock, err := s.app.readLock()
	if err != nil {
		return err
	}
	var adopted []string
	for _, e := range lock.Skills {
		if s.isAdopted(e) {
			adopted = append(adopted, e.Name)
		}
	}
	if len(adopted) == 0 {
		return nil
	}
	return s.app.carryOut(ctx, planned{
		compute: func(i *install.Installer) (*install.Plan, error) { return i.Remove(adopted...) },
	})
}

// isAdopted reports whether an installed skill was taken over from a client.
func (s *machineSetup) isAdopted(e *install.Entry) bool {
	return config.Inside(e.Origin.Source, clients.AdoptedDir(s.state))
}

// disconnectAll disconnects the clients that setups connected. The record loses only what was undone, so that
// undo can be repeated after a failure.
func (s *machineSetup) disconnectAll(ctx context.Context) (failed error) {
	// Two entries of one client may be in the same file, which the last one changed last.
	for _, connection := range slices.Backward(slices.Clone(s.record.Clients)) {
		client := clients.Named(connection.Client)
		if client == nil {
			continue
		}
		if err := s.disconnect(ctx, client, connection); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", client.Title, err))
			continue
		}
		failed = errors.Join(failed, s.record.Disconnected(connection.Client, connection.Entry))
	}
	return failed
}

// disconnect returns the client's files to what they were before the setup. From a file that was changed
// since, only what the setup added is taken out.
func (s *machineSetup) disconnect(ctx context.Context, client *clients.Client, of clients.Connection) error {
	a := s.app
	restored, all, err := s.record.Restore(of, client.Files(a.Env), func(path string) (func(), error) {
		return config.LockEdit(ctx, path)
	})
	for _, path := range restored {
		a.notef("%s is as before the setup", report.Printable(path))
	}
	if err != nil || all {
		return err
	}
	opts := &setupOptions{app: a, client: client, Name: of.Entry, Remove: true}
	setup, err := opts.setup(nil)
	if err != nil {
		return err
	}
	if len(of.Was) > 0 {
		a.notef("the entry %q of %s stays, since its file was changed after the setup; before it was: %s",
			of.Entry, client.Title, report.Printable(report.ShellLine(of.Was...)))
		return setup.ForbidTools(ctx, of.Permitted)
	}
	err = setup.Remove(ctx)
	if errors.Is(err, clients.ErrForeign) {
		fmt.Fprintf(a.err, "%s has another server by the name %q now, which stays\n",
			client.Title, of.Entry)
		err = nil
	}
	return errors.Join(err, setup.ForbidTools(ctx, of.Permitted))
}
