package native_test

import (
	"os"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	native.MaybeHelper()
	os.Exit(m.Run())
}

func TestNative(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash", "python3")
	sandboxtest.Run(t, func(*testing.T) sandbox.Runner { return native.New(nil) })
}

func TestNativeSampled(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash", "python3")
	sandboxtest.Run(t, func(*testing.T) sandbox.Runner { return native.New(&native.Options{NoCgroup: true}) })
}
