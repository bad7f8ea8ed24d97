package memstore_test

import (
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/memstore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) provenance.Store { return memstore.New() })
}
