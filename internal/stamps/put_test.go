package stamps

import (
	"path/filepath"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/audit"
)

func TestASlotOfItsOwnSaysWhichRequestWasAdmitted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stamps")
	parent, err := Create(path, 3)
	testkit.NoErr(t, err)
	defer parent.Close()
	child, err := Open(path)
	testkit.NoErr(t, err)
	defer child.Close()
	// given requests of which the third was admitted, and one for which there is no slot
	child.Put(2, 5, 7)
	child.Put(3, 8, 9)
	// then another process sees which
	for slot, want := range []bool{false, false, true, false} {
		s, ok := parent.At(slot)
		testkit.Check(t, ok == want && (!ok || s == audit.Span{Before: 5, After: 7, N: 1}),
			"%d: %v %v", slot, s, ok)
	}
}
