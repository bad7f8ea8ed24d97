package sandbox

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatch(t *testing.T) {
	for _, tt := range []struct {
		name           string
		cancel, finish time.Duration
		want           Outcome
		after          time.Duration
	}{
		{"timeout", time.Hour, time.Hour, TimedOut, time.Minute},
		{"canceled", time.Second, time.Hour, Canceled, time.Second},
		{"over", time.Hour, time.Second, "", time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			for _, timer := range []*time.Timer{time.AfterFunc(tt.cancel, cancel), time.AfterFunc(tt.finish, func() { close(done) })} {
				defer timer.Stop()
			}
			var got []Outcome
			begin := time.Now()
			Watch(ctx, time.Minute, done, func(o Outcome) { got = append(got, o) })
			if d := time.Since(begin); d != tt.after {
				t.Errorf("%s: returned after %v, want %v", tt.name, d, tt.after)
			}
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || got[0] != tt.want) {
				t.Errorf("%s: ended with %q, want %q", tt.name, got, tt.want)
			}
			cancel()
		})
	}
}
