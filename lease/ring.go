package lease

// ringSlices are the one that now falls in, and seven that together last T.
const ringSlices = 8

// ring is the ledger: the tokens that processes hold, summed by the time at which they run out
// (docs/protocol.md sections 3.4 and 6.8).
//
// Slice s covers [s*width, (s+1)*width) and is forgotten whole when it ends. It is in held[s mod
// 8]. All times are the bucket's running time.
type ring struct {
	width   int64 // ceil(T/7), or wider while older entries need it
	base    int64 // the slice that now falls in; all lower ones are forgotten
	gen     int64 // how often the live slices were moved into the last one
	movedAt int64 // when that was
	held    [ringSlices]int64
	weight  [ringSlices]int64 // weights of the holders whose entry is in the slice
}

// place says where a holder's entry is: the slice, in the numbering of gen, and when that ends.
type place struct {
	gen   int64
	slice int64
	ends  int64
}

func widthFor(ttl int64) int64 { return (ttl + ringSlices - 2) / (ringSlices - 1) }

func newRing(now, ttl int64) ring {
	w := widthFor(ttl)
	return ring{width: w, base: now / w}
}

// ledger is O, the sum of all holdings.
func (r *ring) ledger() int64 { return sum(r.held) }

// weightSum is the sum of the weights of all holders whose entry is live.
func (r *ring) weightSum() int64 { return sum(r.weight) }

func sum(slices [ringSlices]int64) int64 {
	total := int64(0)
	for _, n := range slices {
		total += n
	}
	return total
}

// add changes the tokens and the weight in slice s, which must be live.
func (r *ring) add(s, tokens, weight int64) {
	r.held[s%ringSlices] += tokens
	r.weight[s%ringSlices] += weight
}

// place is where an entry goes that lasts until now + ttl.
func (r *ring) place(now, ttl int64) place {
	s := min((now+ttl)/r.width, r.base+ringSlices-1)
	return place{gen: r.gen, slice: s, ends: (s + 1) * r.width}
}

// locate finds where p's entry is now, and whether it is still in the ring. It follows one move:
// following every one would need unbounded state, and following none would make every holder's call
// void whenever T grows.
func (r *ring) locate(p place) (place, bool) {
	switch {
	case p.gen == r.gen:
	case p.gen == r.gen-1 && p.ends > r.movedAt:
		p = place{gen: r.gen, slice: r.landing(), ends: (r.landing() + 1) * r.width}
	default:
		return place{}, false
	}
	return p, p.slice >= r.base
}

// expire forgets slice base and makes the next one the base.
func (r *ring) expire() {
	r.held[r.base%ringSlices] = 0
	r.weight[r.base%ringSlices] = 0
	r.base++
}

// ends is when slice base ends.
func (r *ring) ends() int64 { return (r.base + 1) * r.width }

// lastEnds is when the last slice with an entry ends; 0 where there is none.
func (r *ring) lastEnds() int64 {
	last := int64(0)
	for s := r.base; s < r.base+ringSlices; s++ {
		if r.held[s%ringSlices] != 0 || r.weight[s%ringSlices] != 0 {
			last = (s + 1) * r.width
		}
	}
	return last
}

// fit adapts the ring to a changed T. A T that grew moves every live entry to where it lasts that
// long, since a retry is told the longer T with the stored grant. A shorter T keeps the wide slices
// while an entry would otherwise end earlier.
func (r *ring) fit(now, ttl int64, grew bool) {
	width := widthFor(ttl)
	if width < r.width && (now/width+ringSlices)*width < r.lastEnds() {
		width = r.width
	}
	if width != r.width || grew {
		r.move(now, width)
	}
}

// move starts a new numbering, with slices of the given width, and all that is live in the last.
func (r *ring) move(now, width int64) {
	tokens, weight := r.ledger(), r.weightSum()
	*r = ring{width: width, base: now / width, gen: r.gen + 1, movedAt: now}
	r.add(r.landing(), tokens, weight)
}

// landing is the slice that the last move put everything into.
func (r *ring) landing() int64 { return r.movedAt/r.width + ringSlices - 1 }
