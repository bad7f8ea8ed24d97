package filestore

// sharedMode is the mode of other files: a read-only file cannot be replaced.
const sharedMode = fileMode
