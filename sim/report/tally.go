package report

// tally counts what one algorithm decided, since the warm-up.
type Tally struct {
	Admitted  int64   // tokens
	ByProcess []int64 // tokens of the most popular key
	// credit is, of each key, the tokens of requests that were admitted and that the central bucket denied, less those that
	// a denied one has been set off against.
	credit                []int64
	Swapped, FalseRejects int64
}

func NewTally(processes, keys int) Tally {
	return Tally{ByProcess: make([]int64, processes), credit: make([]int64, keys)}
}

func (t *Tally) Reset() {
	clear(t.ByProcess)
	clear(t.credit)
	*t = Tally{ByProcess: t.ByProcess, credit: t.credit}
}

// decided books what was decided on n tokens of a key: central is what one central bucket would have answered.
func (t *Tally) Decided(process, key int32, n int64, central, ok bool) {
	switch {
	case ok:
		t.Admitted += n
		if key == 0 {
			t.ByProcess[process] += n
		}
		if !central {
			t.credit[key] += n
		}
	case central:
		swapped := min(t.credit[key], n)
		t.credit[key] -= swapped
		t.Swapped += swapped
		t.FalseRejects += n - swapped
	}
}
