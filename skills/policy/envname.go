package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

var variable = pattern.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// keptPrefixes are the prefixes, in upper case, of names that are reserved for the server, for loaders and
// for interpreters.
var keptPrefixes = []string{
	"CF_HARNESS_", "SKILL_", "SKILLSD_",
	"LD_", "DYLD_", "GLIBC_", "MALLOC_", "_RLD", "RESOLV_",
	"BASH_", "PYTHON", "NODE_", "DENO_", "NPM_CONFIG_", "V8_", "PERL", "RUBY", "AWK", "LUA_", "JAVA_",
	"_JAVA_", "JDK_JAVA_",
}

// keptNames are further reserved names, in upper case: those that a shell or system library interprets as a
// command, that lead a program to files outside of the sandbox, or that the server sets.
var keptNames = []string{
	"PATH", "HOME", "SHELL", "PWD", "OLDPWD", "TMPDIR", "LANG", "LANGUAGE",
	"ENV", "BASHOPTS", "SHELLOPTS", "IFS", "PS0", "PS1", "PS2", "PS3", "PS4", "PROMPT_COMMAND", "CDPATH",
	"FPATH", "GLOBIGNORE", "EXECIGNORE",
	"INPUTRC", "FCEDIT", "POSIXLY_CORRECT", "ZDOTDIR",
	"GCONV_PATH", "GETCONF_DIR", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH", "NIS_PATH", "NLSPATH",
	"RES_OPTIONS", "TZDIR", "CLASSPATH",
	"OPENSSL_CONF", "OPENSSL_CONF_INCLUDE", "OPENSSL_ENGINES", "OPENSSL_MODULES",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY", "AGENT_BROWSER_CDP",
	"PLUGIN_ROOT", "PLUGIN_DATA", "CLAUDE_PLUGIN_ROOT", "CLAUDE_PLUGIN_DATA",
}

// openNames are exceptions from keptPrefixes, without effect outside of scripts.
var openNames = []string{"NODE_ENV"}

// CheckVariable rejects names of environment variables that an entry may not pass to a script: malformed
// names, names longer than 128 characters, names that the server sets, and names that make loaders and
// interpreters run or load something other than the script. Case is ignored.
func CheckVariable(name string) error {
	if key, _, valued := strings.Cut(name, "="); valued {
		// The value may be a secret, and clients see this error.
		return fmt.Errorf("%q is followed by a value: give the name of the variable alone",
			Clip(key))
	}
	if len(name) > 128 || !variable().MatchString(name) {
		return fmt.Errorf("%q is not a name of a variable", Clip(name))
	}
	// Programs such as curl read http_proxy in lower case, and Windows ignores the case of all names.
	upper := strings.ToUpper(name)
	if slices.Contains(openNames, upper) {
		return nil
	}
	for _, prefix := range keptPrefixes {
		if strings.HasPrefix(upper, prefix) {
			return fmt.Errorf("%s is not passed to scripts: names that start with %s are reserved for the "+
				"server, for loaders and for interpreters", name, prefix)
		}
	}
	if slices.Contains(keptNames, upper) {
		return fmt.Errorf("%s is not passed to scripts: it changes which code runs, or the server sets it",
			name)
	}
	return nil
}
