package audit

import "github.com/yuzhi-go/yuzhi/lease"

// A kind of window is one file here: kind_sliding.go and kind_calendar.go. Token buckets are what a Meter and
// Worst count by themselves.

// kinds are the kinds of limits; nil for a token bucket.
var kinds = [...]kind{lease.KindBucket: nil, lease.KindSliding: sliding{}, lease.KindCalendar: calendar{}}

// kind says which moments a window holds.
type kind interface {
	// byServer reports whether admissions count by the server's clock.
	byServer() bool
	// place is where a moment is on an axis on which every window is as long as length says.
	place(b Bound, at int64) int64
	length(b Bound) uint64
	// begin is the first moment of the longest window that ends at e; after e if it would wrap.
	begin(b Bound, e int64) int64
}

func (b Bound) windowed() bool { return kinds[b.Kind] != nil }

// byServer reports whether admissions of b have to be recorded by the server's clock.
func (b Bound) byServer() bool { return b.windowed() && kinds[b.Kind].byServer() }
