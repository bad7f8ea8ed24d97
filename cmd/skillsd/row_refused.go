package main

import (
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// markRefused takes back that scripts of the skills of a snapshot may run of which no run is let through.
func markRefused(j *serve.Judge, snapshot *skills.Snapshot, rows []skillRow) {
	for i := range rows {
		row := &rows[i]
		sk := snapshot.Skill(row.Path)
		if sk == nil {
			continue
		}
		for k := range row.Scripts {
			script := &row.Scripts[k]
			at := slices.IndexFunc(row.Resources, func(r resourceRow) bool { return r.Path == script.Path })
			if !script.Allowed || at < 0 {
				continue
			}
			if denial := j.Refusal(sk, script.Path, row.Resources[at].Digest, row.TreeDigest); denial != nil {
				script.Allowed, script.Reason = false, serve.RefusalText(denial)
				if denial.Code == policy.CodeOutputNotReleased {
					script.Reason = whyUnreleased(j, row, script.Path, row.Resources[at].Digest)
				}
			}
		}
	}
}

// whyUnreleased says of a script that is refused for want of a release what its entry lets it reveal.
func whyUnreleased(j *serve.Judge, row *skillRow, path string, file digest.Digest) (reason string) {
	for _, entry := range j.Allow.Find(row.Path, path) {
		if entry.Changed(file, row.TreeDigest) == policy.Unchanged {
			reason = serve.Unreleased(entry)
		}
	}
	return reason
}
