package native

import (
	"os"
	"os/exec"
	"testing"
)

// A measurement that is under way when the run ends holds up nobody.
func TestSampleStopsWithTheRun(t *testing.T) {
	cat := exec.Command("cat")
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cat.Wait() }()
	// Once it echoes it has memory of its own.
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	going := sample(os.Getpid(), -1, nil, done)
	close(done)
	ended := sample(os.Getpid(), -1, nil, done)
	if going.memory <= ended.memory {
		t.Errorf("sampled %d bytes during the run and %d after it", going.memory, ended.memory)
	}
}

// Before the helper has its own tree the directories are the host's.
func TestFilesOfTheHostDoNotCount(t *testing.T) {
	if root, ok := ownRoot(os.Getpid()); ok {
		t.Errorf("%s counts as a sandbox's", root)
	}
}
