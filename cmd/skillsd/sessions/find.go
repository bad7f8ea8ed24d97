package sessions

import (
	"context"
	"errors"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/provenance"
)

// HintElsewhere is the hint for records that cannot be read or have no session.
const HintElsewhere = "--artifact-root or --state names another place"

// List returns the recorded sessions, the newest first.
//
// Errors: *exit.Error.
func List(ctx context.Context, records provenance.Reader) ([]provenance.Session, error) {
	sessions, err := provenance.ListSessions(ctx, records)
	if errors.Is(err, provenance.ErrSilent) {
		return nil, cluster.Failure(err)
	}
	if err != nil {
		return nil, exit.Errorf(exit.Failure, HintElsewhere, "%w", err)
	}
	return sessions, nil
}

// minEnd is the minimum length of the end of an id that names a session.
const minEnd = 8

// Find returns the id of the session that a name means: an id, "latest", or a unique beginning or end of an
// id. dir is the location of the records, for a hint.
//
// Errors: *exit.Error.
func Find(ctx context.Context, records provenance.Reader, dir, name string) (id string, err error) {
	sessions, err := List(ctx, records)
	if err != nil {
		return "", err
	}
	var matches []string
	end := strings.TrimPrefix(name, "…") // the page shows the end of an id
	for i, s := range sessions {
		if s.ID == name || name == "latest" && i == 0 {
			return s.ID, nil
		}
		isEnd := len(end) >= minEnd && strings.HasSuffix(s.ID, end)
		if name != "" && strings.HasPrefix(s.ID, name) || isEnd {
			matches = append(matches, s.ID)
		}
	}
	switch {
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) > 1:
		return "", exit.Errorf(exit.Failure, "give more of the id; see `skillsd session list`",
			"%d sessions begin or end with %q", len(matches), name)
	case len(sessions) == 0:
		return "", exit.Errorf(exit.Failure, "there are none in "+dir+
			" yet: set a client up, as by `skillsd setup "+
			"claude --write`, and use a skill in it; "+HintElsewhere,
			"no session %q, and no other", name)
	}
	return "", exit.Errorf(exit.Failure, "see `skillsd session list`, or use latest", "no session %q", name)
}
