package main

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// manifests writes what package managers, the registry of MCP servers and links need, with the checksums of
// the downloads.
func (r *release) manifests() error {
	digests := map[string]string{}
	names, err := r.made()
	if err != nil {
		return err
	}
	for _, name := range names {
		if digests[name], err = r.digest(name); err != nil {
			return err
		}
	}
	for _, write := range []func(map[string]string) error{r.homebrew, r.scoop, r.winget, r.registry} {
		if err := write(digests); err != nil {
			return err
		}
	}
	return r.writeJSON("manifests/links.json", links())
}

// download is an archive as the templates name it.
type download struct{ OS, Arch, URL, SHA256, Dir string }

// archives returns the archives of the systems.
func (r *release) archives(digests map[string]string, systems ...string) (found []download) {
	for _, p := range r.platforms {
		if slices.Contains(systems, p.os) {
			name := r.archiveName(p)
			found = append(found, download{OS: p.os, Arch: p.arch, URL: r.url(name), SHA256: digests[name],
				Dir: r.archiveDir(p)})
		}
	}
	return found
}

// homebrew writes the formula, for a repository homebrew-tap.
func (r *release) homebrew(digests map[string]string) error {
	text, err := r.render("skillsd.rb", map[string]any{
		"darwin": r.archives(digests, "darwin"), "linux": r.archives(digests, "linux")})
	if err != nil {
		return err
	}
	return r.write("manifests/homebrew/skillsd.rb", text)
}

// scoop writes the manifest for a bucket.
func (r *release) scoop(digests map[string]string) error {
	machines := map[string]string{"amd64": "64bit", "arm64": "arm64"}
	architecture, again := map[string]any{}, map[string]any{}
	for _, d := range r.archives(digests, "windows") {
		architecture[machines[d.Arch]] = map[string]string{
			"url": d.URL, "hash": d.SHA256, "extract_dir": d.Dir}
		again[machines[d.Arch]] = map[string]string{
			// Scoop puts a later version in place of $version when it updates the manifest by itself.
			"url":         strings.ReplaceAll(d.URL, r.version, "$version"),
			"extract_dir": strings.ReplaceAll(d.Dir, r.version, "$version")}
	}
	return r.writeJSON("manifests/scoop/skillsd.json", map[string]any{
		"version": r.version, "description": summary, "homepage": repository, "license": "MIT",
		"architecture": architecture, "bin": []string{"skillsd.exe", "skillsd-sigstore.exe"},
		"checkver": map[string]string{"github": repository},
		"autoupdate": map[string]any{"architecture": again,
			"hash": map[string]string{"url": "$baseurl/" + checksums}},
	})
}

// wingetID is the package of winget, and its version of the manifests.
const wingetID, wingetSchema = "skillsd.skillsd", "1.10.0"

// winget writes the three manifests of a version.
func (r *release) winget(digests map[string]string) error {
	machines := map[string]string{"amd64": "x64", "arm64": "arm64"}
	installers := r.archives(digests, "windows")
	for i := range installers {
		installers[i].Arch = machines[installers[i].Arch]
		installers[i].SHA256 = strings.ToUpper(installers[i].SHA256)
	}
	for _, part := range []string{"", ".installer", ".locale.en-US"} {
		text, err := r.render("winget"+part+".yaml", map[string]any{"id": wingetID, "schema": wingetSchema,
			"installers": installers})
		if err != nil {
			return err
		}
		if err := r.write("manifests/winget/"+wingetID+part+".yaml", text); err != nil {
			return err
		}
	}
	return nil
}

// imageName is where the image is published, without its tag.
const imageName = "ghcr.io/skillsd/skillsd"

// registry writes server.json for the registry of MCP servers.
func (r *release) registry(digests map[string]string) error {
	stdio := map[string]string{"type": "stdio"}
	word := func(value string) map[string]any { return map[string]any{"type": "positional", "value": value} }
	packages := []map[string]any{{
		"registryType": "npm", "registryBaseUrl": "https://registry.npmjs.org", "identifier": project,
		"version": r.version, "runtimeHint": "npx", "transport": stdio,
		"packageArguments": []map[string]any{word("serve")},
	}}
	for _, p := range r.platforms {
		name := r.bundleName(p)
		packages = append(packages, map[string]any{"registryType": "mcpb", "identifier": r.url(name),
			"version": r.version, "fileSha256": digests[name], "transport": stdio})
	}
	mount := map[string]any{"type": "named", "name": "--volume", "value": "{skills}:/srv/skills:ro",
		"description": "The directory with your skills", "isRequired": true,
		"variables": map[string]any{"skills": map[string]any{"format": "filepath", "isRequired": true,
			"description": "The path of a directory with skills"}}}
	packages = append(packages, map[string]any{
		"registryType": "oci", "identifier": imageName + ":" + r.version, "runtimeHint": "docker",
		"transport": stdio, "runtimeArguments": []map[string]any{mount},
		"packageArguments": []map[string]any{word("serve"), word("--skills-root"), word("/srv/skills")},
	})
	return r.writeJSON("manifests/server.json", map[string]any{
		"$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
		"name":    serverName, "title": project, "description": summary, "version": r.version,
		"websiteUrl": repository, "repository": map[string]string{"url": repository, "source": "github"},
		"packages": packages,
	})
}

// links returns the addresses that add the server to a client. The program must be in PATH. Markdown on
// GitHub has no links to cursor: and vscode:, so the clients' sites pass them on.
func links() map[string]string {
	entry := func(client string, more map[string]any) string {
		fields := map[string]any{"command": project, "args": []string{"serve", "--client", client}}
		for key, value := range more {
			fields[key] = value
		}
		// Strings and slices of strings always have a form in JSON.
		text, err := json.Marshal(fields)
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	cursor := url.Values{"name": {"skills"},
		"config": {base64.StdEncoding.EncodeToString([]byte(entry("cursor", nil)))}}.Encode()
	code := "vscode:mcp/install?" + url.PathEscape(entry("vscode", map[string]any{"name": "skills"}))
	return map[string]string{
		"cursor":     "cursor://anysphere.cursor-deeplink/mcp/install?" + cursor,
		"cursor-web": "https://cursor.com/en/install-mcp?" + cursor,
		"vscode":     code,
		"vscode-web": "https://insiders.vscode.dev/redirect?url=" + url.QueryEscape(code),
	}
}
