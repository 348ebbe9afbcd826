package rival

// fifo is a queue that uses its memory again: it takes a few times what was in it at one time.
type fifo[T any] struct {
	all  []T
	head int // all before it are gone
}

func (f *fifo[T]) len() int    { return len(f.all) - f.head }
func (f *fifo[T]) at(i int) *T { return &f.all[f.head+i] } // at(0) is the oldest
func (f *fifo[T]) clear()      { f.all, f.head = f.all[:0], 0 }

func (f *fifo[T]) drop() {
	f.head++
	if f.len() == 0 {
		f.clear()
	}
}

// add moves what is left to the front once that costs no more than what went before has paid for.
func (f *fifo[T]) add(x T) {
	if len(f.all) == cap(f.all) && f.head > len(f.all)/2 {
		f.all, f.head = f.all[:copy(f.all, f.all[f.head:])], 0
	}
	f.all = append(f.all, x)
}
