package pidone

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpecRoundTrip(t *testing.T) {
	want := &Spec{
		Argv: []string{"/usr/bin/bash", "", "-c", "a\nb"}, Env: []string{"K=V", "E="}, Cwd: "/tmp",
		Mounts: []Mount{
			{Kind: Detached, FD: 5, Target: "/skill", ReadOnly: true, Hidden: true},
			{Kind: Lower, FD: 6, Path: "/srv/w s", Target: "/workspace"},
		},
		Tmp: 1, Inodes: 5, Files: 6, PIDs: 2, File: 1 << 40, CPU: 4, Stdin: true, NoAnonFiles: true, Proxy: true, Setting: Guest,
	}
	data := want.Encode()
	got, err := decodeSpec(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decodeSpec(Encode()) (-want +got):\n%s", diff)
	}
	for n := range data {
		if _, err := decodeSpec(data[:n]); err == nil {
			t.Fatalf("decodeSpec accepts the first %d of %d bytes", n, len(data))
		}
	}
	if _, err := decodeSpec(append(data, 0)); err == nil {
		t.Error("decodeSpec accepts a trailing byte")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&Spec{Argv: []string{"a"}, Mounts: []Mount{{}}}).Encode())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeSpec(data)
		if err != nil {
			return
		}
		again, err := decodeSpec(s.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, again); diff != "" {
			t.Errorf("not stable:\n%s", diff)
		}
	})
}
