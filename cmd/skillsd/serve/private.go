package serve

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// privateFile is a file whose content neither models nor scripts may see.
type privateFile struct{ what, path string }

// privateFiles are the files with keys and secrets that the options name.
func (o *Options) privateFiles() ([]privateFile, error) {
	named := []privateFile{{"--auth-token-file", o.HTTP.TokenFile}, {"--tls-key", o.HTTP.Key},
		{"--sign-key", o.Records.SignKey}}
	for _, name := range slices.Sorted(maps.Keys(o.Process.Cfg.Keys.Secrets)) {
		named = append(named, privateFile{"the file of the secret " + name,
			o.Process.Cfg.Keys.Secrets[name].File})
	}
	var files []privateFile
	for _, file := range named {
		if file.path == "" {
			continue
		}
		path, err := filepath.Abs(file.path)
		if err != nil {
			return nil, err
		}
		files = append(files, privateFile{file.what, path})
	}
	return files, nil
}

// checkPrivate refuses such a file where skills are served from or where scripts can read.
func (p *Plan) checkPrivate() error {
	roots, workspace := p.roots, p.WorkspacePath
	for _, file := range p.private {
		for _, root := range roots {
			if root.FS == nil && config.Inside(file.path, root.Dir) {
				return exit.Usagef("keep it outside of what is served",
					"%s %s lies inside the skills root %s", file.what, file.path, root.Dir)
			}
		}
		if workspace != "" && config.Inside(file.path, workspace) {
			return exit.Usagef("keep it outside of what scripts may see",
				"%s %s lies inside the workspace %s", file.what, file.path, workspace)
		}
	}
	return nil
}
