package report

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// next is the release that the main branch leads to. Builds of commits without a tag have its version with a
// suffix, which sorts before the release.
const next = "v1.0.0"

// linked is set by the linker for a build without a repository, such as in a container:
// -ldflags="-X github.com/skillsd/skillsd/cmd/skillsd/report.linked=v1.0.0".
var linked string

// Build is the build information of the binary.
type Build struct {
	Version   string   `json:"version"`
	Revision  string   `json:"revision,omitempty"`
	Go        string   `json:"go"`
	Platform  string   `json:"platform"`
	Protocols []string `json:"protocols"`
}

// ReadBuild returns the build information of the binary. protocols are the served revisions.
func ReadBuild(protocols []string) Build {
	b := Build{
		Version:   version(linked, ""),
		Go:        runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
		Protocols: protocols,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = version(linked, info.Main.Version)
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			b.Revision = setting.Value
		}
	}
	return b
}

// version returns the version to print, from the linker's version and the main module's. Go takes the latter
// from the tag of the commit, or from `go install ...@VERSION`. If no commit before it has a tag, it starts
// with v0.0.0; its time and revision then follow the version of the next release.
func version(linked, module string) string {
	commit, untagged := strings.CutPrefix(module, "v0.0.0-")
	switch {
	case linked != "":
		return linked
	case module == "" || module == "(devel)":
		return next + "-devel"
	case untagged:
		return next + "-0." + commit
	}
	return module
}
