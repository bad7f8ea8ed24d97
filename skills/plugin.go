package skills

import (
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/store"
)

// PluginDir is the directory of an installed skill with the files of its plugin that it names. They have the
// paths that they have in the plugin.
const PluginDir = ".plugin-root"

// PluginManifests are the files that make a directory a plugin, in order of precedence.
var PluginManifests = []string{".claude-plugin/plugin.json", "plugin.json", ".plugin/plugin.json",
	".codex-plugin/plugin.json", ".cursor-plugin/plugin.json", ".github/plugin/plugin.json",
	"gemini-extension.json"}

// PluginRoot returns the directory that takes the place of the plugin's in a skill with these files:
// PluginDir, or "." for a skill that is a whole plugin. It returns "" for a skill that does not use its
// plugin.
func PluginRoot(files []store.File) string {
	root := ""
	for _, f := range files {
		if strings.HasPrefix(f.Path, PluginDir+"/") {
			return PluginDir
		}
		if slices.Contains(PluginManifests, f.Path) {
			root = "."
		}
	}
	return root
}
