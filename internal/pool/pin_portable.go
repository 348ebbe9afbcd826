//go:build yuzhi_portable || !(amd64 || arm64 || loong64 || ppc64le || riscv64 || s390x)

package pool

import (
	"sync"
	"sync/atomic"
)

// handles numbers the Ps without the runtime's functions: a sync.Pool keeps an item at the P that put the
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

// Pin returns a number that few other goroutines have at the same time.
func Pin() int { return *handles.Get().(*int) }

// Unpin ends a Pin; i is the result of Pin.
func Unpin(i int) { handles.Put(&numbers[i]) }

// at returns the index of the stripe, of n stripes, that a goroutine pinned to i uses.
func at(i, n int) int { return i % max(n, 1) }

type counter struct{ n atomic.Int64 }

func (c *counter) add() { c.n.Add(1) }

func (c *counter) load() int64 { return c.n.Load() }
