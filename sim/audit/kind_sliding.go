package audit

type sliding struct{}

func (sliding) byServer() bool { return false }

func (sliding) place(_ Bound, at int64) int64 { return at }

func (sliding) length(b Bound) uint64 { return uint64(b.Per) }

// begin returns a time just later than Per ago: no window holds admissions at both e-Per and e.
func (sliding) begin(b Bound, e int64) int64 { return e - int64(b.Per) + 1 }
