//go:build !linux

package skills

import "os"

func openBase(dir string) (folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return genericFolder{tree: osTree{root}, rel: ".", own: true}, nil
}
