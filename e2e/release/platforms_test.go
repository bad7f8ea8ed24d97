package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"fmt"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestInstallPlatforms looks into the downloads for every platform, most of which this machine cannot start: their
// programs were built for it, and beside them are the same files as for the others.
func TestInstallPlatforms(t *testing.T) {
	r := ready(t)
	if len(r.platforms) != 6 {
		t.Errorf("the release is for %v", r.platforms)
	}
	lists := map[string][]string{}
	for _, p := range r.platforms {
		for kind, name := range map[string]string{"archive": r.archiveName(p), "bundle": r.bundleName(p),
			"npm": r.npmName("@skillsd/" + p.node()), "gemini": r.geminiName(p)} {
			files := members(t, name, r.read(t, name))
			builtFor(t, r, p, name, files)
			names, pages := listed(r, p, files)
			if lists[kind] == nil {
				lists[kind] = names
			}
			if !slices.Equal(names, lists[kind]) {
				t.Errorf("%s has %q, other platforms have %q", name, names, lists[kind])
			}
			// Windows has no man.
			if manual := kind == "archive" && p.os != "windows"; manual != (pages > 40) {
				t.Errorf("%s has %d pages of the manual", name, pages)
			}
		}
	}
	for kind, want := range map[string]string{"archive": "skillsd/completions/skillsd.ps1",
		"bundle": "server/skillsd", "npm": "package/skillsd", "gemini": "skillsd"} {
		if !slices.Contains(lists[kind], want) {
			t.Errorf("%s lacks %s: %q", kind, want, lists[kind])
		}
	}
	for p, programs := range imagesOf(t, r) {
		builtFor(t, r, p, "the image", programs)
	}
}

// listed returns the names of an archive, as they are for every platform, and how many pages of the manual it has.
func listed(r *release, p platform, files map[string]file) (names []string, pages int) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".1" {
			pages++
			continue
		}
		name = strings.TrimSuffix(name, ".exe")
		names = append(names, strings.Replace(name, r.archiveDir(p), project, 1))
	}
	slices.Sort(names)
	return names, pages
}

// builtFor holds the programs among files to a platform.
func builtFor(t *testing.T, r *release, p platform, where string, files map[string]file) {
	t.Helper()
	programs, revision := 0, setting(t, r.built(here, project), "vcs.revision")
	for name, f := range files {
		base := strings.TrimSuffix(path.Base(name), ".exe")
		if base != project && base != verifier || !f.mode.IsRegular() || f.mode&0o111 == 0 {
			continue
		}
		programs++
		if path.Base(name) != p.program(base) {
			t.Errorf("%s: %s is not the name of a program on %s", where, name, p.os)
		}
		if got, err := form(f.data, p.os); err != nil || got != p.String() {
			t.Errorf("%s: %s is for %q, want %s: %v", where, name, got, p, err)
		}
		info, err := buildinfo.Read(bytes.NewReader(f.data))
		if err != nil {
			t.Errorf("%s: %s: %v", where, name, err)
			continue
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if info.Path != info.Main.Path+"/cmd/"+base || settings["GOOS"] != p.os || settings["GOARCH"] != p.arch ||
			settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
			t.Errorf("%s: %s is %s, built with %v", where, name, info.Path, settings)
		}
		// The tree changed while the release was built.
		if settings["vcs.revision"] != revision {
			t.Errorf("%s: %s is of the commit %s, others of %s", where, name, settings["vcs.revision"], revision)
		}
	}
	if programs == 0 {
		t.Errorf("%s has no program", where)
	}
}

// setting returns a setting with which a program was built.
func setting(t *testing.T, program, key string) string {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// form reads the header that the kernel of a system reads.
func form(program []byte, system string) (string, error) {
	from := bytes.NewReader(program)
	switch system {
	case "darwin":
		f, err := macho.NewFile(from)
		if err != nil {
			return "", err
		}
		// Macs with Apple's processors kill a program that has no signature: an LC_CODE_SIGNATURE, which the linker
		// writes.
		signed := slices.ContainsFunc(f.Loads, func(l macho.Load) bool {
			return len(l.Raw()) > 4 && f.ByteOrder.Uint32(l.Raw()) == 0x1d
		})
		arch := map[macho.Cpu]string{macho.CpuAmd64: "amd64", macho.CpuArm64: "arm64"}[f.Cpu]
		if f.Type != macho.TypeExec || arch == "arm64" && !signed {
			return "", fmt.Errorf("%v, signed: %v", f.Type, signed)
		}
		return "darwin-" + arch, nil
	case "windows":
		f, err := pe.NewFile(from)
		if err != nil {
			return "", err
		}
		return "windows-" + map[uint16]string{pe.IMAGE_FILE_MACHINE_AMD64: "amd64",
			pe.IMAGE_FILE_MACHINE_ARM64: "arm64"}[f.Machine], nil
	}
	f, err := elf.NewFile(from)
	if err != nil {
		return "", err
	}
	// A program that needs a dynamic loader does not start where there is another C library, or no library at all.
	dynamic := slices.ContainsFunc(f.Progs, func(s *elf.Prog) bool { return s.Type == elf.PT_INTERP })
	if f.Type != elf.ET_EXEC || dynamic {
		return "", fmt.Errorf("%v, dynamic: %v", f.Type, dynamic)
	}
	return "linux-" + map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[f.Machine], nil
}

// TestInstallLinuxPackages compares the packages for both machines: the same files, and programs for each.
func TestInstallLinuxPackages(t *testing.T) {
	r := ready(t)
	t.Run("deb", func(t *testing.T) {
		dpkg := need(t, "dpkg-deb")
		var first []string
		for _, p := range r.platforms {
			if p.os != "linux" {
				continue
			}
			name := fmt.Sprintf("%s_%s_%s.deb", project, r.version, p.arch)
			text, err := exec.Command(dpkg, "--fsys-tarfile", filepath.Join(r.out, name)).Output()
			if err != nil {
				t.Fatal(err)
			}
			files := members(t, "files.tar", text)
			builtFor(t, r, p, name, files)
			first = same(t, name, first, slices.Sorted(maps.Keys(files)))
		}
	})
	t.Run("rpm", func(t *testing.T) {
		rpm := need(t, "rpm")
		var first []string
		for _, arch := range []string{"x86_64", "aarch64"} {
			name := fmt.Sprintf("%s-%s.%s.rpm", project, r.version, arch)
			got := output(t, exec.Command(rpm, "--query", "--package", "--queryformat", "%{ARCH}\n", "--list",
				filepath.Join(r.out, name)))
			machine, list, _ := strings.Cut(got, "\n")
			if machine != arch {
				t.Errorf("%s is for %s", name, machine)
			}
			first = same(t, name, first, strings.Fields(list))
		}
	})
}

// same compares the files of a package with those of the first one.
func same(t *testing.T, name string, first, files []string) []string {
	t.Helper()
	if len(files) < 50 || first != nil && !slices.Equal(first, files) {
		t.Errorf("%s has %q, the other %q", name, files, first)
	}
	return files
}
