package watch

// maxDirs is the most directories that are watched. One costs about a kibibyte in the kernel.
const maxDirs = 200_000
