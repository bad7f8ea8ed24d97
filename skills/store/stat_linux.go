package store

import (
	"syscall"
	"time"
)

func changeTime(stat *syscall.Stat_t) time.Time {
	return unixTime(int64(stat.Ctim.Sec), int64(stat.Ctim.Nsec))
}
