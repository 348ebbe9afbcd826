package audit

type sliding struct{}

func (sliding) byServer() bool { return false }

func (sliding) place(_ Bound, at int64) int64 { return at }

func (sliding) length(b Bound) uint64 { return uint64(b.Per) }

// begin returns the time one nanosecond after e-Per: no window contains admissions at both e-Per and e.
func (sliding) begin(b Bound, e int64) int64 { return e - int64(b.Per) + 1 }
