// Package cfharness defines the JSON records of the reference harness and folds them from the events of a
// session: the rows of its artifacts (skill-activations.json, policy-trace.json …), its snapshots, its run
// manifest, its invocation contexts and the output objects of its tools.
//
// Field names, key order, omission of absent keys and values of enumerations follow the reference. A record
// may have a final key skillsd for facts that the reference does not cover. The package reads no files and
// keeps no state besides its folds.
package cfharness

import "github.com/skillsd/skillsd/provenance"

// List is [provenance.List].
type List[T any] = provenance.List[T]

// Timestamp is [provenance.Timestamp].
type Timestamp = provenance.Timestamp
