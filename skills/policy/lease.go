package policy

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Lease is a browser that a client lends to one skill. Decide validates it.
type Lease struct {
	ID        string
	CDPURL    string // endpoint of the DevTools protocol
	ExpiresAt time.Time
}

// Limits of a lease, in bytes.
const (
	maxLease    = 4 << 10 // of the whole object
	maxLeaseID  = 200
	maxEndpoint = 200
)

// LeaseError reports a malformed lease.
type LeaseError struct{ Reason string }

func (e *LeaseError) Error() string { return "browser lease: " + e.Reason }

// ParseLease parses {leaseId, cdpUrl, expiresAt}, where expiresAt is RFC 3339. Other keys are ignored.
// Missing and malformed values are left zero: Decide refuses such a lease where one is needed, and elsewhere
// it has no effect.
//
// Errors: *LeaseError.
func ParseLease(raw json.RawMessage) (*Lease, error) {
	if len(raw) > maxLease {
		return nil, &LeaseError{"longer than 4 KiB"}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return nil, &LeaseError{"not an object"}
	}
	lease := &Lease{}
	lease.ID, _ = text(fields["leaseId"])
	lease.CDPURL, _ = text(fields["cdpUrl"])
	expires, _ := text(fields["expiresAt"])
	if at, err := time.Parse(time.RFC3339, expires); err == nil {
		lease.ExpiresAt = at
	}
	return lease, nil
}

// check returns an error if a lease is not valid at now. The texts contain nothing from the lease.
func (l *Lease) check(now time.Time) error {
	switch {
	case l == nil:
		return errors.New("this script needs a browser lease, and the call has none")
	case l.ID == "" || len(l.ID) > maxLeaseID:
		return errors.New("the browser lease has no leaseId of 1 to 200 bytes")
	case l.ExpiresAt.IsZero():
		return errors.New("the browser lease has no expiresAt as RFC 3339 writes it")
	// A request without a time would make every lease valid.
	case now.IsZero() || !now.Before(l.ExpiresAt):
		return errors.New("the browser lease has expired")
	}
	return checkEndpoint(l.CDPURL)
}

var errEndpoint = errors.New("the browser lease's cdpUrl is not http://HOST:PORT with 127.0.0.1, [::1], " +
	"localhost or host.docker.internal")

// checkEndpoint accepts only the canonical form of each endpoint, so that no two parsers can disagree about
// its host.
func checkEndpoint(endpoint string) error {
	if len(endpoint) > maxEndpoint {
		return errEndpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return errEndpoint
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 || !slices.Contains([]string{"127.0.0.1", "::1", "localhost",
		"host.docker.internal"}, u.Hostname()) {
		return errEndpoint
	}
	plain := url.URL{Scheme: "http", Host: u.Host}
	if u.Hostname() == "::1" {
		// Hostname drops the brackets, so other spellings such as [0:0:0:0:0:0:0:1] or a zone are refused by
		// this comparison.
		plain.Host = "[::1]:" + u.Port()
	}
	if number := strconv.FormatUint(port, 10); number != u.Port() || endpoint != plain.String() &&
		endpoint != plain.String()+"/" {
		return errEndpoint
	}
	return nil
}
