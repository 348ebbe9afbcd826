//go:build yuzhi_portable || !(amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package pool

import (
	"sync"
	"sync/atomic"
)

// handles numbers the Ps without the runtime's functions. A sync.Pool keeps an item at the P that put the
// item, so each P mostly gets the same number.
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

// Pin returns a number that few other goroutines have at the same time. Unpin gives the number back.
func Pin() int { return *handles.Get().(*int) }

// Unpin ends a Pin; i is the result of Pin.
func Unpin(i int) { handles.Put(&numbers[i]) }

// at returns which of n stripes a goroutine that is pinned to i uses.
func at(i, n int) int { return i % max(n, 1) }

// counter is incremented by pinned goroutines, and read by any goroutine.
type counter struct{ n atomic.Int64 }

func (c *counter) add() { c.n.Add(1) }

// load returns the count so far.
func (c *counter) load() int64 { return c.n.Load() }
