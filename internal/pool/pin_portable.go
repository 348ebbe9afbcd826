//go:build yuzhi_portable || !(amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package pool

import (
	"sync"
	"sync/atomic"
)

// handles stand for the numbers of Ps where the runtime is not asked for them. A sync.Pool keeps
// what it is given at the P that gave it, so that each P mostly has a handle of its own.
var handles = sync.Pool{New: func() any { return &numbers[int(number.Add(1))%len(numbers)] }}

var (
	number  atomic.Int64
	numbers = func() (n [1024]int) {
		for i := range n {
			n[i] = i
		}
		return n
	}()
)

// Pin returns a number that few others have at the same time, for Unpin to give back.
func Pin() int { return *handles.Get().(*int) }

// Unpin ends what Pin began; i is a result of Pin.
func Unpin(i int) { handles.Put(&numbers[i]) }

// at returns the stripe, of n, for a goroutine that is pinned to i.
func at(i, n int) int { return i % max(n, 1) }

// counter is incremented by goroutines that have a number, and read by any.
type counter struct{ n atomic.Int64 }

func (c *counter) add() { c.n.Add(1) }

// load is the count so far.
func (c *counter) load() int64 { return c.n.Load() }
