package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

//go:embed templates
var templates embed.FS

// render fills in a template.
func (r *release) render(name string, more map[string]any) ([]byte, error) {
	text, err := templates.ReadFile("templates/" + name)
	if err != nil {
		return nil, err
	}
	// A misspelt name would otherwise be published as <no value>.
	parsed, err := template.New(name).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	values := map[string]any{"version": r.version, "tag": r.tag(), "repository": repository,
		"summary": summary, "date": r.time.Format(time.DateOnly)}
	for key, value := range more {
		values[key] = value
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, values)
	return out.Bytes(), err
}

// deploy are files for a service, which packages have too.
const deploy = "cmd/skillsd/deploy"

// linuxPackages makes the packages for Debian and RPM of a platform, with the unit, the manual, completions
// and the profile of AppArmor.
func (r *release) linuxPackages(ctx context.Context, nfpm string, p platform) error {
	dir, err := os.MkdirTemp("", "skillsd-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for format, name := range map[string]string{
		"deb": fmt.Sprintf("%s_%s_%s.deb", project, r.version, p.arch),
		"rpm": fmt.Sprintf("%s-%s.%s.rpm", project, r.version, rpmArch[p.arch]),
	} {
		config := filepath.Join(dir, format+".json")
		contents, err := r.packageContents(filepath.Join(dir, format), format, p)
		if err != nil {
			return err
		}
		if err := os.WriteFile(config, jsonText(contents), 0o644); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, nfpm, "package", "--packager", format, "--config", config,
			"--target", filepath.Join(r.out, name))
		// nfpm would put the time of the build into the package.
		cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix()))
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nfpm: %w: %s", err, text)
		}
	}
	return nil
}

var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// packageContents writes the files of a package into a directory, and returns the configuration of nfpm.
func (r *release) packageContents(dir, format string, p platform) (map[string]any, error) {
	unit, err := os.ReadFile(deploy + "/skillsd.service")
	if err != nil {
		return nil, err
	}
	profile, err := os.ReadFile(deploy + "/apparmor")
	if err != nil {
		return nil, err
	}
	// The unit is written for a program that was installed by hand.
	unit = bytes.ReplaceAll(unit, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
	zsh := "/usr/share/zsh/site-functions/_skillsd"
	if format == "deb" {
		zsh = "/usr/share/zsh/vendor-completions/_skillsd"
	}
	completion := map[string]string{"skillsd.bash": "/usr/share/bash-completion/completions/skillsd",
		"_skillsd": zsh, "skillsd.fish": "/usr/share/fish/vendor_completions.d/skillsd.fish"}
	files := []file{
		{name: "/usr/bin/skillsd", from: r.built(p, project), mode: 0o755},
		{name: "/usr/bin/skillsd-sigstore", from: r.built(p, verifier), mode: 0o755},
		{name: "/usr/lib/systemd/system/skillsd.service", data: unit},
		{name: "/usr/share/skillsd/apparmor", data: profile},
		{name: "/usr/share/doc/skillsd/copyright", data: r.license},
		{name: "/usr/share/doc/skillsd/README.md", data: r.readme},
		{name: "/usr/share/doc/skillsd/THIRD_PARTY_NOTICES", data: r.notices},
	}
	files = append(files, below("/usr/share/skillsd/skills", r.skills...)...)
	for _, f := range r.completions {
		if to := completion[f.name]; to != "" {
			files = append(files, file{name: to, data: f.data})
		}
	}
	for _, page := range r.man {
		// The policy of Debian requires compressed manual pages (section 12.1).
		compressed, err := gzipped(page.data)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "/usr/share/man/man1/" + page.name + ".gz", data: compressed})
	}
	var contents []map[string]any
	for _, f := range files {
		from := f.from
		if from == "" {
			from = filepath.Join(dir, filepath.FromSlash(f.name))
			err := errors.Join(os.MkdirAll(filepath.Dir(from), 0o755), os.WriteFile(from, f.data, 0o644))
			if err != nil {
				return nil, err
			}
		}
		contents = append(contents, map[string]any{"src": from, "dst": f.name,
			"file_info": map[string]any{"mode": f.permissions(), "owner": "root", "group": "root"}})
	}
	scripts := map[string]string{}
	for _, name := range []string{"postinstall", "postremove"} {
		text, err := r.render(name+".sh", nil)
		if err != nil {
			return nil, err
		}
		scripts[name] = filepath.Join(dir, name)
		if err := os.WriteFile(scripts[name], text, 0o755); err != nil {
			return nil, err
		}
	}
	version, prerelease, _ := strings.Cut(r.version, "-")
	return map[string]any{
		"name": project, "arch": p.arch, "platform": "linux", "version_schema": "none", "version": version,
		// A hyphen would start the revision.
		"prerelease": strings.ReplaceAll(prerelease, "-", "."), "release": "1",
		"section": "utils", "priority": "optional", "license": "MIT", "homepage": repository,
		"maintainer": "skillsd <skillsd@users.noreply.github.com>", "description": summary, "vendor": project,
		"mtime": r.time.Format(time.RFC3339), "contents": contents, "scripts": scripts,
		// Skills come by git, and their scripts need an interpreter.
		"recommends": []string{"ca-certificates", "git", "python3"},
		"rpm": map[string]any{"compression": "gzip", "buildhost": project, "packager": project,
			"summary": summary},
	}, nil
}

func gzipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	to, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := to.Write(data); err != nil {
		return nil, err
	}
	err = to.Close()
	return out.Bytes(), err
}

// serverName is the name in the registry of MCP servers, whose packages must have it.
const serverName = "io.github.skillsd/skillsd"

// npmFields are what packages of npm have in common.
func (r *release) npmFields(name, about string) map[string]any {
	return map[string]any{"name": name, "version": r.version, "description": about, "license": "MIT",
		"homepage":   repository + "#readme",
		"repository": map[string]string{"type": "git", "url": "git+" + repository + ".git"},
		"bugs":       map[string]string{"url": repository + "/issues"}}
}

// npmName is the file of a package as `npm pack` names it.
func (r *release) npmName(name string) string {
	return strings.NewReplacer("@", "", "/", "-").Replace(name) + "-" + r.version + ".tgz"
}

// npmMain makes the package that users install: a launcher, and one optional dependency for each platform.
func (r *release) npmMain() error {
	launcher, err := templates.ReadFile("templates/skillsd.js")
	if err != nil {
		return err
	}
	platforms := map[string]string{}
	for _, p := range r.platforms {
		platforms["@skillsd/"+p.node()] = r.version
	}
	fields := r.npmFields(project, summary)
	fields["bin"] = map[string]string{project: "skillsd.js"}
	fields["mcpName"] = serverName
	fields["optionalDependencies"] = platforms
	fields["engines"] = map[string]string{"node": ">=18"}
	fields["keywords"] = []string{"mcp", "mcp-server", "agent-skills", "skills", "sandbox"}
	return r.create(r.npmName(project), below("package",
		file{name: "package.json", data: jsonText(fields)},
		file{name: "skillsd.js", data: launcher, mode: 0o755},
		file{name: "LICENSE", data: r.license},
		file{name: "README.md", data: r.readme}), writeTarGz)
}

// npmPlatform makes the package with the program of a platform.
func (r *release) npmPlatform(p platform) error {
	name := "@skillsd/" + p.node()
	system, machine, _ := strings.Cut(p.node(), "-")
	fields := r.npmFields(name, "The program of skillsd for "+p.os+" on "+p.arch)
	fields["os"], fields["cpu"] = []string{system}, []string{machine}
	// Package managers that keep packages in archives must unpack a program.
	fields["preferUnplugged"] = true
	readme := []byte("The program of [skillsd](" + repository + ") for " + p.os + " on " + p.arch +
		". Install `skillsd`, which depends on it.\n")
	return r.create(r.npmName(name), below("package",
		file{name: "package.json", data: jsonText(fields)},
		file{name: p.program(project), from: r.built(p, project), mode: 0o755},
		file{name: "LICENSE", data: r.license},
		file{name: "README.md", data: readme},
		file{name: "THIRD_PARTY_NOTICES", data: r.notices}), writeTarGz)
}

// bundleName is the file of an MCP bundle. A bundle has one program: its manifest chooses by system only.
func (r *release) bundleName(p platform) string { return r.archiveDir(p) + ".mcpb" }

// bundle makes an MCP bundle, which Claude Desktop and other clients install.
func (r *release) bundle(p platform) error {
	system, _, _ := strings.Cut(p.node(), "-")
	program := "server/" + p.program(project)
	manifest := map[string]any{
		"manifest_version": "0.3", "name": project, "display_name": project, "version": r.version,
		"description": summary, "license": "MIT", "homepage": repository, "support": repository + "/issues",
		"author":     map[string]string{"name": project, "url": repository},
		"repository": map[string]string{"type": "git", "url": repository + ".git"},
		"server": map[string]any{"type": "binary", "entry_point": program,
			"mcp_config": map[string]any{"command": "${__dirname}/" + program, "args": []string{"serve"},
				"env": map[string]string{}}},
		"tools_generated": true, "prompts_generated": true,
		"compatibility": map[string]any{"platforms": []string{system}},
		"keywords":      []string{"skills", "agent-skills", "sandbox"},
	}
	return r.create(r.bundleName(p), []file{
		{name: "manifest.json", data: jsonText(manifest)},
		{name: program, from: r.built(p, project), mode: 0o755},
		{name: "LICENSE", data: r.license},
		{name: "THIRD_PARTY_NOTICES", data: r.notices},
	}, writeZip)
}

// geminiName is the file of an extension of Gemini CLI, which takes its platform from the name.
func (r *release) geminiName(p platform) string {
	name := strings.ReplaceAll(p.node(), "-", ".") + "." + project
	if p.os == "windows" {
		return name + ".zip"
	}
	return name + ".tar.gz"
}

// geminiExtension makes the archive that `gemini extensions install` takes from a release.
func (r *release) geminiExtension(p platform) error {
	manifest := map[string]any{"name": project, "version": r.version, "description": summary,
		"mcpServers": map[string]any{"skills": map[string]any{
			"command": "${extensionPath}${/}" + p.program(project),
			"args":    []string{"serve", "--client", "gemini"}}}}
	files := []file{
		{name: "gemini-extension.json", data: jsonText(manifest)},
		{name: p.program(project), from: r.built(p, project), mode: 0o755},
		{name: "LICENSE", data: r.license},
		{name: "THIRD_PARTY_NOTICES", data: r.notices},
	}
	if p.os == "windows" {
		return r.create(r.geminiName(p), files, writeZip)
	}
	return r.create(r.geminiName(p), files, writeTarGz)
}
