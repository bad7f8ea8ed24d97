package config

import "io/fs"

// CheckOwner checks nothing: who may write a file is not in its mode here.
func CheckOwner(string, fs.FileInfo) (hint string, err error) { return "", nil }

// OthersRead knows nothing either.
func OthersRead(fs.FileInfo) bool { return false }
