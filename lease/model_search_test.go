package lease

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// explore searches breadth first until budget states are known, so that the first violation found has the
// shortest trace. States are kept as encodings while they wait, and as 64-bit hashes afterwards.
func (m model) explore(budget int) result {
	w := newWorld(m)
	seen := newHashSet()
	var parents []uint32
	var causes []event
	var layer, next []byte // encodings, each after its length and number
	put := func(buf, enc []byte, number int) []byte {
		buf = binary.LittleEndian.AppendUint16(buf, uint16(len(enc)))
		buf = binary.LittleEndian.AppendUint32(buf, uint32(number))
		return append(buf, enc...)
	}
	start, _ := w.encode(nil)
	seen.add(hash(start))
	parents, causes = append(parents, 0), append(causes, event{})
	layer = put(layer, start, 0)
	var events []event
	var enc []byte
	r := result{}
	for depth := 1; len(layer) > 0 && (m.depth == 0 || depth <= m.depth); depth++ {
		next = next[:0]
		for rest := layer; len(rest) > 0; {
			size := int(binary.LittleEndian.Uint16(rest))
			number := int(binary.LittleEndian.Uint32(rest[2:]))
			state := rest[6 : 6+size]
			rest = rest[6+size:]
			w.decode(state)
			events = w.events(events[:0])
			for i, e := range events {
				if i > 0 {
					w.decode(state)
				}
				violation := w.apply(e)
				if violation == "" {
					enc, _ = w.encode(enc[:0])
					if !seen.add(hash(enc)) {
						continue
					}
				}
				parents, causes = append(parents, uint32(number)), append(causes, e)
				if violation != "" {
					r.states = len(parents)
					r.violation = violation
					r.trace, r.length = m.replay(parents, causes)
					return r
				}
				next = put(next, enc, len(parents)-1)
			}
			if len(parents) >= budget {
				r.states, r.depth = len(parents), depth-1
				return r
			}
		}
		r.depth = depth
		layer, next = next, layer
	}
	r.states, r.complete = len(parents), m.depth == 0
	if r.complete {
		r.depth-- // the last layer was empty
	}
	return r
}

// replay walks from the start to the last state and tells what happened, holders under the names they began with.
func (m model) replay(parents []uint32, causes []event) (string, int) {
	var way []event
	for i := uint32(len(parents) - 1); i != 0; i = parents[i] {
		way = append([]event{causes[i]}, way...)
	}
	w := newWorld(m)
	start, _ := w.encode(nil)
	w.decode(start)
	names := []string{"A", "B", "C"}
	var lines []string
	for i, e := range way {
		line := w.describe(e, names)
		violation := w.apply(e)
		lines = append(lines, fmt.Sprintf("%3d  %-62s %s", i+1, line, w.sketch(names)))
		if violation != "" {
			break
		}
		enc, order := w.encode(nil)
		w.decode(enc)
		permuted := append([]string(nil), names...)
		for to, from := range order {
			permuted[to] = names[from]
		}
		names = permuted
	}
	return strings.Join(lines, "\n"), len(way)
}

// hashSet is a set of 64-bit hashes, eight bytes a slot, so that tens of millions of states fit into memory.
type hashSet struct {
	slots []uint64
	n     int
}

func newHashSet() *hashSet { return &hashSet{slots: make([]uint64, 1<<12)} }

// add reports whether h is new.
func (s *hashSet) add(h uint64) bool {
	if h == 0 {
		h = 1
	}
	if 4*s.n >= 3*len(s.slots) {
		old := s.slots
		s.slots, s.n = make([]uint64, 2*len(old)), 0
		for _, o := range old {
			if o != 0 {
				s.add(o)
			}
		}
	}
	mask := uint64(len(s.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch s.slots[i] {
		case h:
			return false
		case 0:
			s.slots[i] = h
			s.n++
			return true
		}
	}
}

// hash multiplies and folds eight bytes at a time, as wyhash does.
func hash(b []byte) uint64 {
	h := uint64(len(b)) * 0x9e3779b97f4a7c15
	fold := func(v uint64) {
		hi, lo := bits.Mul64(h^v, 0xa0761d6478bd642f)
		h = hi ^ lo ^ v*0xe7037ed1a0b428db
	}
	for ; len(b) >= 8; b = b[8:] {
		fold(binary.LittleEndian.Uint64(b))
	}
	var last [8]byte
	copy(last[:], b)
	fold(binary.LittleEndian.Uint64(last[:]))
	fold(0x8ebc6af09c88c6e3)
	return h
}
