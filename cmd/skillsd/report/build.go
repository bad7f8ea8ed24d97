package report

import (
	"runtime"
	"runtime/debug"
)

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
		Version:   "devel",
		Go:        runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
		Protocols: protocols,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			b.Revision = setting.Value
		}
	}
	return b
}
