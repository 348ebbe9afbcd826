package protocol

import (
	"math/bits"
)

// ringSlices is the number of slices: the present slice, and seven that together last at least T.
const ringSlices = 8

// ring is the ledger: it sums holdings by the slice of time in which they end (docs/protocol.md sections 3.4
// and 6.8). Slice s covers [s*width, (s+1)*width) of the running time, and is stored in held[s mod 8]. Widths
// are powers of two, so a slice lies within one wider slice.
type ring struct {
	width   int64 // at least T/7; more while older entries need a wider slice
	base    int64 // the present slice; all lower slices are forgotten
	movedAt int64 // when the width last changed
	held    [ringSlices]int64
	weight  [ringSlices]int64 // weights of the holders with an entry in the slice
}

// place is the end of the slice with a holder's entry.
type place = int64

// widthFor returns the least power of two that is at least a seventh of ttl.
func widthFor(ttl int64) int64 {
	return 1 << bits.Len64(uint64((ttl+ringSlices-2)/(ringSlices-1)-1))
}

func newRing(now, ttl int64) ring {
	w := widthFor(ttl)
	return ring{width: w, base: now / w}
}

func (r *ring) ledger() int64 { return sum(r.held) }

func (r *ring) weightSum() int64 { return sum(r.weight) }

func sum(slices [ringSlices]int64) int64 {
	total := int64(0)
	for _, n := range slices {
		total += n
	}
	return total
}

// add adds tokens and weight to slice s, which must not have ended.
func (r *ring) add(s, tokens, weight int64) {
	r.held[s%ringSlices] += tokens
	r.weight[s%ringSlices] += weight
}

// place returns the place of an entry that lasts until now + ttl.
func (r *ring) place(now, ttl int64) place {
	s := min((now+ttl)/r.width, r.base+ringSlices-1)
	return (s + 1) * r.width
}

// slice returns the number of the slice that ends at p.
func (r *ring) slice(p place) int64 { return (p - 1) / r.width }

// locate returns the present place of the entry that was put at p, and whether the ring still has the entry.
// An entry whose slice became part of a wider slice ends with the wider slice.
func (r *ring) locate(p place) (place, bool) {
	if p <= r.movedAt {
		return 0, false
	}
	p = (r.slice(p) + 1) * r.width
	return p, r.slice(p) >= r.base
}

func (r *ring) expire() {
	r.held[r.base%ringSlices] = 0
	r.weight[r.base%ringSlices] = 0
	r.base++
}

func (r *ring) ends() int64 { return (r.base + 1) * r.width }

// lastEnds returns when the last slice with an entry ends; 0 if no slice has an entry.
func (r *ring) lastEnds() int64 {
	last := int64(0)
	for s := r.base; s < r.base+ringSlices; s++ {
		if r.held[s%ringSlices] != 0 || r.weight[s%ringSlices] != 0 {
			last = (s + 1) * r.width
		}
	}
	return last
}

// fit adapts the width to a changed T (6.8).
func (r *ring) fit(now, ttl int64) {
	width := widthFor(ttl)
	switch {
	case width > r.width:
	case width < r.width && now-r.movedAt >= 2*ringSlices*r.width:
		width = r.width / 2
		if r.lastEnds() > (now/width+ringSlices)*width {
			return
		}
	default:
		return
	}
	old := *r
	r.width, r.base, r.movedAt = width, now/width, now
	r.held, r.weight = [ringSlices]int64{}, [ringSlices]int64{}
	for s := old.base; s < old.base+ringSlices; s++ {
		r.add(((s+1)*old.width-1)/width, old.held[s%ringSlices], old.weight[s%ringSlices])
	}
}
