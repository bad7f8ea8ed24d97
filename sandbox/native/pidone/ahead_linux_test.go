package pidone

import (
	"reflect"
	"syscall"
	"testing"
)

func TestBirths(t *testing.T) {
	want := []Birth{
		{Mark: Ahead, Files: true, Attr: &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 1, HostID: 2, Size: 3}, {ContainerID: 4, HostID: 5, Size: 6}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 7, HostID: 1<<32 - 2, Size: 1}}, GidMappingsEnableSetgroups: true,
			Credential: &syscall.Credential{Uid: 8, Gid: 9, NoSetGroups: true}, AmbientCaps: []uintptr{21, 22}, Setsid: true,
		}},
		{Mark: Inside, Attr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}},
	}
	data := EncodeBirths(want)
	if got, err := decodeBirths(data); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("decodeBirths = %+v, %v, want %+v", got, err, want)
	}
	for n := range data {
		if got, err := decodeBirths(data[:n]); err == nil {
			t.Fatalf("decodeBirths of the first %d bytes of %d = %+v", n, len(data), got)
		}
	}
}

// A Spec that is not for what was made ahead, or names a descriptor that did not come, starts nothing.
func TestTakeSent(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec Spec
		ok   bool
	}{
		{"mounts", Spec{Mounts: []Mount{{FD: FirstFD + 1}, {FD: FirstFD}}}, true},
		{"a descriptor too many", Spec{Mounts: []Mount{{FD: FirstFD + 2}}}, false},
		{"a stream", Spec{Mounts: []Mount{{FD: 1}}}, false},
		{"another program's sandbox", Spec{Setting: Built}, false},
	} {
		h := &helper{spec: &tt.spec, sent: []int{30, 31}}
		if err := h.takeSent(); (err == nil) != tt.ok {
			t.Errorf("%s: takeSent = %v", tt.name, err)
		}
		if tt.ok && (tt.spec.Mounts[0].FD != 31 || tt.spec.Mounts[1].FD != 30) {
			t.Errorf("%s: mounts %+v", tt.name, tt.spec.Mounts)
		}
	}
}
