package report

import "golang.org/x/sys/windows"

// DropTyped discards unread input of a console. It does not discard a line that was completed while another
// read was waiting for it.
func DropTyped(fd uintptr) error { return windows.FlushConsoleInputBuffer(windows.Handle(fd)) }
