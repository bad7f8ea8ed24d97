package e2e

import "os/exec"

func ownGroup(*exec.Cmd) {}

func killGroup(int) bool { return false }
