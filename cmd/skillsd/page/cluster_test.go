package page_test

import (
	"regexp"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/page"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

// TestCluster wants the records of a cluster shown as those of a directory are.
func TestCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conn := clustertest.Start(t, 1).Connect(t)
	options := &jetstream.Options{Replicas: 1}
	store, err := jetstream.Open(t.Context(), conn, options)
	if err != nil {
		t.Fatal(err)
	}
	for id, text := range map[string]string{"ses_a": "plain", "ses_b": hostile} {
		corpus(t, dir, id, text)
		record(t, store, id, text)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	records, err := jetstream.OpenReader(t.Context(), conn, options)
	if err != nil {
		t.Fatal(err)
	}
	directory := open(t, dir)
	cluster := open(t, dir, func(o *page.Options, _ string) { o.Records = records })
	if !directory.login() || !cluster.login() {
		t.Fatal("the link does not open the page")
	}
	// Each record has its own times, and digests of them; events of a cluster say which node had the session.
	own := regexp.MustCompile(`"turn":"[^"]*",|\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{64}`)
	read := func(s *site, path string) string { return own.ReplaceAllString(s.get(path), "") }
	for _, id := range []string{"ses_a", "ses_b"} {
		for _, s := range []*site{directory, cluster} {
			if got := s.verified(id); got.Verdict.State != "verified" {
				t.Fatalf("%s: %+v", id, got.Verdict)
			}
		}
	}
	for _, path := range []string{"/sessions/ses_a/session.json", "/sessions/ses_b/session.json",
		"/sessions/ses_b/session.json?only=bad", "/sessions/ses_b/replay.jsonl", "/sessions/ses_b/events/4/line.json",
		"/sessions/ses_b/outputs/ses_b_run_skill_script_2.stdout", "/sessions.json?principal=plain", "/sessions.json?skill=click",
		"/sessions.json?denied=1&state=ended", "/refusals.json?by=skill", "/approvals.json", "/health.json"} {
		if want, got := read(directory, path), read(cluster, path); got != want {
			t.Errorf("%s of a cluster is\n%s\nand of a directory\n%s", path, got, want)
		}
	}
}
