package detect

import (
	"os"
	"testing"

	"github.com/skillsd/skillsd/sandbox/native"
)

func TestMain(m *testing.M) {
	native.MaybeHelper()
	os.Exit(m.Run())
}
