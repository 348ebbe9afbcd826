package report

// Tally counts the tokens that one algorithm decided on since the warm-up. See Figures for what
// false rejects are, and swapped requests.
type Tally struct {
	Admitted     int64
	ByProcess    []int64 // of Admitted: those of the most popular key
	Swapped      int64
	FalseRejects int64

	// credit is, of each key, what was admitted although the central bucket denied it, as far as it
	// has not been swapped yet.
	credit []int64
}

// NewTally has counted nothing.
func NewTally(processes, keys int) Tally {
	return Tally{ByProcess: make([]int64, processes), credit: make([]int64, keys)}
}

// Reset forgets everything, at the end of the warm-up.
func (t *Tally) Reset() {
	clear(t.ByProcess)
	clear(t.credit)
	*t = Tally{ByProcess: t.ByProcess, credit: t.credit}
}

// Decided books a decision on n tokens of a key; central is what one central bucket would have
// said.
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
