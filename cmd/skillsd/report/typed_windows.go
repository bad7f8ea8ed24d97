package report

import "golang.org/x/sys/windows"

// DropTyped discards unread input of a console. A line completed while another read was waiting belongs to
// that read and is not discarded.
func DropTyped(fd uintptr) error { return windows.FlushConsoleInputBuffer(windows.Handle(fd)) }
