package config

import (
	"os"
	"testing"
)

// A working directory that was removed is an error of the options, for each client.
func TestRootsWithoutWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	gone := dir + "/gone"
	if err := os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	p := &Process{Env: func(name string) (string, bool) { return dir, name == "HOME" }}
	for _, client := range []string{"", "claude", "zed"} {
		o := &RootOptions{Client: client}
		if _, err := o.Given(p); (err != nil) != (client != "") {
			t.Errorf("client %q: %v", client, err)
		}
		if err := o.NoRoots(p); err == nil {
			t.Errorf("client %q: roots without roots", client)
		}
	}
}
