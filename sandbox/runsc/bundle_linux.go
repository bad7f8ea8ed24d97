package runsc

import (
	"encoding/json"
	"strconv"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// The parts of an OCI configuration that are used here. All others stay empty: capabilities, hooks, further
// devices.
type (
	config struct {
		Version  string  `json:"ociVersion"`
		Process  process `json:"process"`
		Root     root    `json:"root"`
		Hostname string  `json:"hostname"`
		Mounts   []mount `json:"mounts"`
		Linux    linux   `json:"linux"`
	}
	process struct {
		User struct {
			UID int `json:"uid"`
			GID int `json:"gid"`
		} `json:"user"`
		Args            []string            `json:"args"`
		Env             []string            `json:"env"`
		Cwd             string              `json:"cwd"`
		Capabilities    map[string][]string `json:"capabilities"`
		NoNewPrivileges bool                `json:"noNewPrivileges"`
	}
	root struct {
		Path     string `json:"path"`
		ReadOnly bool   `json:"readonly"`
	}
	mount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options"`
	}
	linux struct {
		Namespaces []namespace `json:"namespaces"`
	}
	namespace struct {
		Type string `json:"type"`
	}
)

// bundle returns the OCI configuration of the guest.
func bundle(p *native.Plan, as native.Identity, files []pidone.RootFile) (string, error) {
	c := config{
		Version: "1.0.0", Hostname: "sandbox",
		Root:   root{Path: rootName, ReadOnly: true},
		Mounts: mounts(p, files),
	}
	c.Process.User.UID, c.Process.User.GID = inside(p, as)
	c.Process.Args = []string{"sandbox-init"}
	c.Process.Env = pidone.Environ(pidone.Inside)
	c.Process.Cwd = "/"
	c.Process.NoNewPrivileges = true
	none := []string{}
	c.Process.Capabilities = map[string][]string{
		"bounding": none, "effective": none, "inheritable": none, "permitted": none, "ambient": none,
	}
	for _, n := range []string{"pid", "network", "ipc", "uts", "mount"} {
		c.Linux.Namespaces = append(c.Linux.Namespaces, namespace{n})
	}
	data, err := json.Marshal(c)
	return string(data), err
}

// mounts returns the guest's mounts. Later mounts may be inside earlier ones.
func mounts(p *native.Plan, files []pidone.RootFile) []mount {
	readOnly := []string{"rbind", "ro", "nosuid", "nodev"}
	scratch := func(at string, size int64) mount {
		return mount{at, "tmpfs", "tmpfs", []string{"nosuid", "nodev", "mode=1777",
			"size=" + strconv.FormatInt(max(size, 1), 10)}}
	}
	l := []mount{
		{"/proc", "proc", "proc", []string{"ro", "nosuid", "nodev", "noexec"}},
		{"/sys", "sysfs", "sysfs", []string{"ro", "nosuid", "nodev", "noexec"}},
		scratch("/dev/shm", 16<<20),
		scratch(sandbox.TmpDir, p.Limits.Scratch),
		scratch(sandbox.OutDir, 16<<20),
	}
	for _, f := range files {
		if f.Link == "" {
			l = append(l, mount{"/" + f.Path, "bind", "/" + f.Path, readOnly})
		}
	}
	if c := p.Cmd.Cache; c.Dir != nil {
		// Parent directories created by gVisor would belong to root.
		for i := range c.At {
			if c.At[i] == '/' && i > len(sandbox.TmpDir) {
				l = append(l, scratch(c.At[:i], 16<<20))
			}
		}
	}
	for i, m := range p.Spec.Mounts {
		options := readOnly
		if !m.ReadOnly {
			options = []string{"rbind", "rw", "nosuid", "nodev"}
		}
		l = append(l, mount{m.Target, "bind", pidone.EntryPath(i), options})
	}
	// The files of a root file system itself have another number for the user.
	if p.Cmd.Root != nil {
		for _, f := range []string{"/etc/passwd", "/etc/group"} {
			l = append(l, mount{f, "bind", pidone.EntryDir + "/" + rootName + f, readOnly})
		}
	}
	return l
}
