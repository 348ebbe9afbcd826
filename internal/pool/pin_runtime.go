//go:build !yuzhi_portable && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package pool

import (
	"sync/atomic"
	_ "unsafe" // for linkname
)

// sync.Pool uses runtime.procPin too; the runtime keeps procPin linkable, because many packages use procPin.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// Pin keeps the calling goroutine on its P until Unpin, and returns the P's number. Until Unpin no other
// goroutine runs on that P. The build tag yuzhi_portable avoids the runtime's functions.
func Pin() int { return procPin() }

// Unpin ends a Pin; i is the result of Pin.
func Unpin(i int) { procUnpin() }

// at returns the stripe of a goroutine that is pinned to P i, which has none if i is n or more.
func at(i, n int) int { return i }

// counter is incremented by the goroutine that is pinned to its P, and read by any goroutine.
type counter struct{ n int64 }

// add adds 1, not atomically: a counter has one writer, the processors in the build tag write an aligned word
// whole, and a reader may see the new count some time later. The race detector knows nothing of pins, so
// norace switches it off.
//
//go:norace
func (c *counter) add() { c.n++ }

// load returns the count so far.
func (c *counter) load() int64 { return atomic.LoadInt64(&c.n) }
