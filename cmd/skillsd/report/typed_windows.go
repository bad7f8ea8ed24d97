package report

import "golang.org/x/sys/windows"

// DropTyped forgets what was typed on a console and not read yet. A line that was ended while another read
// of the console waited was given to that read, so it is not among what is forgotten.
func DropTyped(fd uintptr) error { return windows.FlushConsoleInputBuffer(windows.Handle(fd)) }
