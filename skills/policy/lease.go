package policy

import "time"

// Lease is a browser that a client lets one skill drive.
type Lease struct {
	ID        string
	CDPURL    string
	ExpiresAt time.Time
}
