//go:build !yuzhi_portable && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package pool

import (
	"sync/atomic"
	_ "unsafe" // for linkname
)

// sync.Pool uses runtime.procPin too; the runtime keeps it linkable, because many packages use it.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// Pin keeps the calling goroutine on its P until Unpin, and returns the P's number. No other goroutine runs
// on that P meanwhile. The build tag yuzhi_portable avoids the runtime's functions.
func Pin() int { return procPin() }

// Unpin ends a Pin; i is the result of Pin.
func Unpin(i int) { procUnpin() }

// at returns which of n stripes a goroutine uses that is pinned to i: its own, or none if i is n or more.
func at(i, n int) int { return i }

// counter is incremented by the goroutine that is pinned to its P, and read by any.
type counter struct{ n int64 }

// add counts one. It need not be atomic: a counter has one writer, the machines named above write an aligned
// word whole, and a reader may see it some time later. The race detector knows nothing of pins, so it is
// switched off here.
//
//go:norace
func (c *counter) add() { c.n++ }

// load returns the count so far.
func (c *counter) load() int64 { return atomic.LoadInt64(&c.n) }
