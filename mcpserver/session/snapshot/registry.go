package snapshot

import (
	"context"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
)

// manySkills is how many skills leave so much garbage behind, when they are indexed and written, that an idle
// server gives the memory back at once.
const manySkills = 1000

// maxParts bounds how many parts of a snapshot are remembered.
const maxParts = 256

// Registries writes the registries of a snapshot: of the whole, and of the parts that some sessions may see.
// The zero value is ready. It is safe for concurrent use.
type Registries struct {
	mu   sync.Mutex
	of   *skills.Snapshot
	each map[*skills.Snapshot]*registry
}

// registry is skill-registry.json of one part: with all files, and with each skill's SKILL.md only.
type registry struct{ whole, short provenance.Shared }

// Put writes skill-registry.json of a session that may see a part of a snapshot, or the whole of it. It has
// the digest of every file, unless patient ends before they are known: then it has the digest of each
// SKILL.md, so that the record names every skill in any case.
//
// Errors: as [provenance.Writer].
func (r *Registries) Put(
	ctx, patient context.Context, records provenance.Writer, session string,
	of, visible *skills.Snapshot, facts *Facts,
) (provenance.File, error) {
	is := r.part(patient, of, visible, facts)
	f, err := records.PutShared(ctx, session, provenance.RegistryFile, &is.whole)
	if err != nil && patient.Err() != nil {
		f, err = records.PutShared(ctx, session, provenance.RegistryFile, &is.short)
	}
	return f, err
}

// part returns the registry of a part. Registries of earlier snapshots are forgotten.
func (r *Registries) part(patient context.Context, of, visible *skills.Snapshot, facts *Facts) *registry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of != of || len(r.each) >= maxParts {
		r.of, r.each = of, map[*skills.Snapshot]*registry{}
	}
	is := r.each[visible]
	if is == nil {
		is = &registry{}
		write := func(whole bool) func(w io.Writer, made func(time.Time) error) error {
			return func(w io.Writer, made func(time.Time) error) error {
				if len(visible.Skills) > manySkills {
					defer debug.FreeOSMemory()
				}
				if len(visible.Skills) == len(of.Skills) {
					defer of.Release()
				}
				return registryOf(visible).WriteEach(w, made, registrySkills(patient, visible, facts, whole))
			}
		}
		is.whole.Write, is.short.Write = write(true), write(false)
		r.each[visible] = is
	}
	return is
}
