//go:build !yuzhi_portable && (amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package pool

import (
	"sync/atomic"
	_ "unsafe" // for linkname
)

// The runtime keeps procPin linkable, because many packages use procPin.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// Pin keeps the calling goroutine on its P until Unpin, and returns the P's number. Until Unpin no other
// goroutine runs on that P.
func Pin() int { return procPin() }

// Unpin ends a Pin; i is the result of Pin.
func Unpin(i int) { procUnpin() }

// at returns the index of the stripe of a goroutine pinned to P i; there is no such stripe if i is n or more.
func at(i, n int) int { return i }

// counter is incremented by the goroutine that is pinned to the counter's P, and read by any goroutine.
type counter struct{ n int64 }

// add adds 1 without an atomic instruction: a counter has one writer, and the processors in the build tag
// write an aligned word whole. The race detector does not know pins, so norace switches the detector off.
//
//go:norace
func (c *counter) add() { c.n++ }

func (c *counter) load() int64 { return atomic.LoadInt64(&c.n) }
