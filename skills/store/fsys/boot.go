package fsys

import (
	"os"
	"strings"
	"sync"
)

// BootID returns what is different after each start of the kernel, "" where the system has none: marks of
// files that were made before say nothing about what another system did to them.
var BootID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})
