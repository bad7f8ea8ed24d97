package policy

import (
	"strings"
	"testing"
)

func TestCheckVariable(t *testing.T) {
	for _, name := range []string{"TOKEN", "API_KEY", "GITHUB_TOKEN", "_x", "a1", "NODE_ENV", "LC_ALL", "TERM", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY",
		"PATHS", "ENVIRONMENT", strings.Repeat("A", 128)} {
		if err := CheckVariable(name); err != nil {
			t.Errorf("CheckVariable(%q) = %v", name, err)
		}
	}
	for _, name := range []string{"", "1A", "A-B", "A B", "A=B", "A\x00", "Ä", "A\n", strings.Repeat("A", 129),
		"LD_PRELOAD", "ld_preload", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "GLIBC_TUNABLES", "MALLOC_CHECK_",
		"PYTHONPATH", "PYTHONSTARTUP", "PYTHONANYTHING", "NODE_OPTIONS", "NODE_PATH", "NODE_TLS_REJECT_UNAUTHORIZED", "DENO_DIR", "npm_config_prefix",
		"BASH_ENV", "BASH_FUNC_ls", "BASH_XTRACEFD", "ENV", "SHELLOPTS", "BASHOPTS", "IFS", "PS4", "PROMPT_COMMAND", "CDPATH", "PATH", "Path", "HOME", "TMPDIR",
		"PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "OPENSSL_CONF", "GCONV_PATH", "HOSTALIASES", "LOCALDOMAIN", "LANG",
		"HTTP_PROXY", "https_proxy", "no_proxy", "SKILL_NAME", "SKILL_DIR", "CF_HARNESS_RUN_ID", "SKILLSD_TOKEN", "AGENT_BROWSER_CDP",
		"PLUGIN_ROOT", "claude_plugin_data"} {
		if CheckVariable(name) == nil {
			t.Errorf("CheckVariable(%q) lets it through", name)
		}
	}
}

// A value that an operator wrote behind the name is not repeated: clients see why a server cannot start.
func TestCheckVariableWithValue(t *testing.T) {
	err := CheckVariable("API_KEY=sk-secret")
	if err == nil || strings.Contains(err.Error(), "sk-secret") || !strings.Contains(err.Error(), "API_KEY") {
		t.Errorf("CheckVariable = %v", err)
	}
}
