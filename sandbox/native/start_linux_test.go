package native

import "testing"

// TestMountable has an interpreter cover no part of the sandbox.
func TestMountable(t *testing.T) {
	for path, want := range map[string]bool{
		"/opt/python": true, "/home/user/.local/share": true, "/mnt/disk": true, "/mnt/skills/other": true, "/var/lib/x": true,
		"": false, "/": false, "opt": false, "/opt/": false, "/opt/../usr": false,
		"/usr": false, "/usr/local/lib": false, "/etc/x": false, "/dev": false, "/proc/1": false, "/sys": false, "/tmp/x": false,
		"/skill": false, "/workspace/x": false, "/out": false, "/env": false, "/node_modules": false, "/.layers/own": false,
		"/mnt": false, "/mnt/skills": false, "/mnt/skills/user": false, "/mnt/skills/user/x": false,
	} {
		if got := mountable(path); got != want {
			t.Errorf("mountable(%q) = %v", path, got)
		}
	}
}
