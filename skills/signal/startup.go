package signal

import (
	"github.com/skillsd/skillsd/skills/pattern"
)

// startupFiles are parts of the names of files that other programs run, or obey, by themselves.
var startupFiles = []string{"authorized_keys", ".bashrc", ".bash_profile", ".bash_login", ".bash_aliases",
	".zshrc", ".zprofile", ".zshenv", ".zlogin", "/.profile", "config.fish", "LaunchAgents", "LaunchDaemons",
	"systemd/user", "systemd/system", "config/autostart", "Programs\\Startup", "CurrentVersion\\Run",
	"/etc/cron", "/etc/rc.local", "/etc/ld.so.preload", "/etc/profile", "/etc/sudoers", "/var/spool/cron",
	".git/hooks", "hooks/pre-commit", "hooks/post-", "hooks/pre-push"}

// scheduled matches commands that make other programs run one later.
var scheduled = pattern.New(`(?i)\|\s*(?:sudo\s+)?crontab\b(?:\s+-u\s+\S+)?(?:\s+-)?\s*(?:$|["';&|)])` +
	`|(?:^|[;&|]\s*)(?:sudo\s+)?crontab\s+(?:-u\s+\S+\s+)?(?:-|["'/$~\w.]\S*)\s*$` +
	`|["']crontab["']\s*,\s*(?:["'][^-]|["']-["']|[A-Za-z_])` +
	`|\blaunchctl["',\s]+(?:load|bootstrap)\b|\bsystemctl\b.*--user\b.*\benable\b` +
	`|\bmake (?:new )?login item\b|\bgit\b[^;|&]*\b(?:core\.(?:hooksPath|fsmonitor|sshCommand)` +
	`|init\.templateDir)["',\s=]+[^\s"',;|&)]` +
	`|\bschtasks(?:\.exe)?["',\s]+/create\b|\bRegister-ScheduledTask\b` +
	`|\b(?:New|Set)-ItemProperty\b.*CurrentVersion\\\\?Run\b` +
	`|\breg(?:\.exe)?["',\s]+add\b.*CurrentVersion\\\\?Run\b`)

// schedulers are texts. Each match of scheduled has one.
var schedulers = []string{"crontab", "hooksPath", "hookspath", "fsmonitor", "sshCommand", "templateDir",
	"launchctl", "login item", "--user", "schtasks", "ScheduledTask", "CurrentVersion"}

// searchStartup searches a line of a program for a change of what other programs run by themselves.
func (s *Scanner) searchStartup(line []byte, here []tainted, does taint) {
	if s.program == shell && does&hooks != 0 && s.isOrdinaryHook(line) {
		return
	}
	isStartup, isScheduler := hasTaint(here, startup), does&schedules != 0
	if !isStartup && !isScheduler || !s.spend(line) || s.isPrinted(line) {
		return
	}
	if isStartup && s.program == shell && s.beginsSettings(line) {
		return
	}
	if !containsAny(line, "/.ssh/") {
		line = s.afterSettings(line)
	}
	if isScheduler && s.isScheduled(line) || isStartup && s.writesTo(line, startup) {
		s.found.addPlain(Unasked, s.line)
	}
}

// onOpening is the value of a task that an editor runs when a folder is opened.
const onOpening = "folderOpen"

// task is a task of an editor that runs when a folder is opened.
type task struct {
	line      int  // where a program has it, or 0
	isWritten bool // the program writes the tasks of an editor
}

// searchTasks searches a line of a program for such a task, and for a file with the tasks of an editor that
// it writes.
func (s *Scanner) searchTasks(line []byte, here []tainted, does taint) {
	if does&opening != 0 {
		s.task.line = s.line
	}
	if !s.task.isWritten && hasTaint(here, tasks) && s.spend(line) {
		s.task.isWritten = s.writesTo(line, tasks)
	}
}

// isScheduled reports whether a line has a command of scheduled that is not only shown to a user.
func (s *Scanner) isScheduled(line []byte) bool {
	m := scheduled().FindIndex(line)
	return m != nil && !s.isShown(line, m[0], m[1])
}

// lifecycle matches a script in package.json that package managers run on their own.
var lifecycle = pattern.New(`"(?:pre|post)?install"\s*:\s*"`)

// runUnasked are the names of files that programs run on their own where they find them.
var runUnasked = []string{"conftest.py", "sitecustomize.py", "usercustomize.py", ".envrc"}
