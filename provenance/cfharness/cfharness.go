// Package cfharness has the JSON shapes of the reference harness and folds them from the events of a session:
// the rows of its artifacts (skill-activations.json, policy-trace.json …), its snapshots, its run manifest,
// its invocation contexts and the output objects of its tools.
//
// Field names, the order of keys, the omission of absent ones and the values of enumerations are the
// reference's. A record may end with one more key, skillsd, that holds what the reference has no place for.
// The package reads no files and keeps no state besides its folds.
package cfharness

import "github.com/skillsd/skillsd/provenance"

// List is [provenance.List].
type List[T any] = provenance.List[T]

// Timestamp is [provenance.Timestamp].
type Timestamp = provenance.Timestamp
