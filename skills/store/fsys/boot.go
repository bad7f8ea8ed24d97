package fsys

import (
	"os"
	"strings"
	"sync"
)

// BootID returns an id that changes with each boot of the kernel, or "" if the system has none. Marks of
// files from before a boot do not show changes made by another system in between.
var BootID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})
