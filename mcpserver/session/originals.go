package session

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
)

// TypeChanges is the type of a ChangeList.
const TypeChanges = "skillsd.changes"

// ChangeList is what a run changed in a workspace, as `skillsd undo` reads it. It is for the user only.
type ChangeList struct {
	Type      string           `json:"type"`
	Version   int              `json:"version"`
	OutputID  string           `json:"outputId"` // of the run
	Skill     string           `json:"skill"`
	Path      string           `json:"path"` // of the script
	At        time.Time        `json:"at"`   // when the run was called
	Workspace string           `json:"workspace"`
	Changes   []sandbox.Change `json:"changes"`
}

// keeper keeps what a run is about to change in the workspace of its session. It implements sandbox.Keeper.
type keeper struct {
	store   provenance.Originals
	ctx     context.Context
	session string
	list    ChangeList
	planned digest.Digest // of the list before the run's changes were applied
}

// keeperOf returns the keeper of a run on this machine, or nil if its records keep nothing.
func (s *Session) keeperOf(ctx context.Context, r *run, dir string) *keeper {
	if s.cfg.Originals == nil || r.recorded == nil {
		return nil
	}
	// A canceled run may have changed files already, and its list must still be written.
	return &keeper{store: s.cfg.Originals, ctx: context.WithoutCancel(ctx), session: s.id, list: ChangeList{
		Type: TypeChanges, Version: 1, OutputID: r.output, Skill: r.script.skill.Path, Path: r.script.path,
		At: r.at.UTC(), Workspace: dir,
	}}
}

// Room implements sandbox.Keeper.
func (k *keeper) Room(bytes int64) error { return k.store.RoomForOriginals(k.ctx, k.session, bytes) }

// Keep implements sandbox.Keeper.
func (k *keeper) Keep(content io.Reader) (string, error) {
	d, err := k.store.KeepOriginal(k.ctx, k.session, content)
	return d.String(), err
}

// Plan implements sandbox.Keeper.
func (k *keeper) Plan(changes []sandbox.Change) (err error) {
	k.planned, err = k.write(changes)
	return err
}

// write stores the list of changes in place of the one before.
func (k *keeper) write(changes []sandbox.Change) (digest.Digest, error) {
	list := k.list
	list.Changes = changes
	data, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	return k.store.KeepChanges(k.ctx, k.session, data, k.planned)
}

// drop deletes the list of a run that changed nothing.
func (k *keeper) drop() error {
	if k.planned == "" {
		return nil
	}
	_, err := k.store.KeepChanges(k.ctx, k.session, nil, k.planned)
	return err
}

// kept stores the list of what a run with a keeper has changed, and returns what its record and its answer
// have of it.
func (s *Session) kept(ctx context.Context, r *run, result *sandbox.Result) *cfharness.Kept {
	kept := &cfharness.Kept{Entries: len(result.Kept.Changes), Problem: result.Kept.Problem}
	if kept.Entries == 0 {
		if err := r.cmd.keeper.drop(); err != nil {
			s.cfg.Logger.WarnContext(ctx, "a list of changed files is left", tint.Err(err))
		}
		return nil
	}
	if kept.Problem != "" {
		return kept
	}
	var err error
	kept.Changes, err = r.cmd.keeper.write(result.Kept.Changes)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "the list of changed files is not kept", tint.Err(err))
		kept.Problem = "the list of the files that it changed could not be kept"
	}
	return kept
}
