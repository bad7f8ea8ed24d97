package report

import (
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/mod/semver"
)

func TestVersion(t *testing.T) {
	for _, test := range []struct{ linked, module, want string }{
		// go install github.com/skillsd/skillsd/cmd/skillsd@v1.0.0, or a build of the tagged commit.
		{module: "v1.0.0", want: "v1.0.0"},
		{module: "v1.0.0+dirty", want: "v1.0.0+dirty"},
		// A commit after a release.
		{module: "v1.0.1-0.20261129031800-1155a8d9c0de", want: "v1.0.1-0.20261129031800-1155a8d9c0de"},
		// A commit before the first.
		{module: "v0.0.0-20261129031800-1155a8d9c0de", want: next + "-0.20261129031800-1155a8d9c0de"},
		{module: "v0.0.0-20261129031800-1155a8d9c0de+dirty", want: next + "-0.20261129031800-1155a8d9c0de+dirty"},
		// A build without a repository.
		{module: "(devel)", want: next + "-devel"},
		{want: next + "-devel"},
		{linked: "v1.2.3", module: "(devel)", want: "v1.2.3"},
	} {
		got := version(test.linked, test.module)
		if got != test.want {
			t.Errorf("version(%q, %q) = %q, want %q", test.linked, test.module, got, test.want)
		}
		if !semver.IsValid(got) {
			t.Errorf("%q is not a semantic version", got)
		}
		if strings.HasPrefix(got, next+"-") && semver.Compare(got, next) >= 0 {
			t.Errorf("%q does not come before %s", got, next)
		}
	}
	if _, ok := debug.ReadBuildInfo(); !ok || !semver.IsValid(ReadBuild(nil).Version) {
		t.Errorf("this build has the version %q", ReadBuild(nil).Version)
	}
}
