//go:build !yuzhi_portable && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package pool

import (
	"sync/atomic"
	_ "unsafe" // for linkname
)

// sync.Pool uses runtime.procPin; the runtime keeps it reachable, because many packages link to it.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// Pin forbids the scheduler to take the calling goroutine off its P until Unpin, and returns the P's number.
// Nothing else runs on that P meanwhile. Build with the tag yuzhi_portable to do without the runtime's help.
func Pin() int { return procPin() }

// Unpin ends what Pin began; i is a result of Pin.
func Unpin(i int) { procUnpin() }

// at returns the stripe, of n, for a goroutine that is pinned to i: its own or none.
func at(i, n int) int { return i }

// counter is incremented by the goroutine that is pinned to its P, and read by any.
type counter struct{ n int64 }

// Add counts one. It need not be atomic, because a counter has one writer, an aligned word is written
// whole on the machines named above, and a reader may see it some time after. The race detector
// knows nothing of pins, so it is told not to look.
//
//go:norace
func (c *counter) add() { c.n++ }

// load is the count so far.
func (c *counter) load() int64 { return atomic.LoadInt64(&c.n) }
