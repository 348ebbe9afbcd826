package audit

import "github.com/yuzhi-go/yuzhi/lease"

// Each kind of window is a file of package audit: kind_sliding.go and kind_calendar.go. Meter and Worst
// implement token buckets themselves.

// kinds has the implementation of each lease.Kind, and nil for a token bucket.
var kinds = [...]kind{lease.KindBucket: nil, lease.KindSliding: sliding{}, lease.KindCalendar: calendar{}}

// kind tells which times belong to one window.
type kind interface {
	// byServer reports whether admissions count by the server's clock.
	byServer() bool
	// place maps a time to an axis on which all windows have the same length. length returns that length.
	place(b Bound, at int64) int64
	length(b Bound) uint64
	// begin returns the first time of the longest window that ends at e; a time after e means overflow.
	begin(b Bound, e int64) int64
}

func (b Bound) windowed() bool { return kinds[b.Kind] != nil }

// byServer reports whether the record for b must use the server's clock.
func (b Bound) byServer() bool { return b.windowed() && kinds[b.Kind].byServer() }
