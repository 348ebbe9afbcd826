package audit

// calendar treats a period as a window of length 1 on an axis of period numbers.
type calendar struct{}

func (calendar) byServer() bool { return true }

// place returns the number of the period that contains a time.
func (calendar) place(b Bound, at int64) int64 {
	k, into := at/int64(b.Per), at%int64(b.Per)
	if into < 0 {
		k, into = k-1, into+int64(b.Per)
	}
	if into < int64(b.Offset) {
		k--
	}
	return k
}

func (calendar) length(Bound) uint64 { return 1 }

func (c calendar) begin(b Bound, e int64) int64 { return c.place(b, e)*int64(b.Per) + int64(b.Offset) }
