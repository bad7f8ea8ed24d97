package policy

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Lease is a browser that a client lets one skill drive. Decide judges it.
type Lease struct {
	ID        string
	CDPURL    string // the endpoint of its debugging protocol
	ExpiresAt time.Time
}

// Bounds of a lease, in bytes.
const (
	maxLease    = 4 << 10 // of the whole
	maxLeaseID  = 200
	maxEndpoint = 200
)

// LeaseError is a lease that does not have its form.
type LeaseError struct{ Reason string }

func (e *LeaseError) Error() string { return "browser lease: " + e.Reason }

// ParseLease reads {leaseId, cdpUrl, expiresAt}; expiresAt is RFC 3339. Other keys are ignored. What is
// missing or not of its form is left zero: Decide refuses such a lease where one is needed, and it does
// no harm elsewhere.
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

// check says why a lease does not hold at a time. Its texts repeat nothing of the lease.
func (l *Lease) check(now time.Time) error {
	switch {
	case l == nil:
		return errors.New("this script needs a browser lease, and the call has none")
	case l.ID == "" || len(l.ID) > maxLeaseID:
		return errors.New("the browser lease has no leaseId of 1 to 200 bytes")
	case l.ExpiresAt.IsZero():
		return errors.New("the browser lease has no expiresAt as RFC 3339 writes it")
	case now.IsZero() || !now.Before(l.ExpiresAt):
		return errors.New("the browser lease has expired")
	}
	return checkEndpoint(l.CDPURL)
}

var errEndpoint = errors.New("the browser lease's cdpUrl is not http://HOST:PORT with 127.0.0.1, [::1], " +
	"localhost or host.docker.internal")

// checkEndpoint accepts only the one way to write each endpoint, so that no two readers of it can
// disagree on where it leads.
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
		plain.Host = "[::1]:" + u.Port()
	}
	if number := strconv.FormatUint(port, 10); number != u.Port() || endpoint != plain.String() &&
		endpoint != plain.String()+"/" {
		return errEndpoint
	}
	return nil
}
