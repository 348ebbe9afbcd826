package lease

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// tree is what has been explored: the states in the order in which they were found, each as the
// event that led to it from its parent.
type tree struct {
	model
	parents []uint32
	causes  []event
	// The worlds on the way to the state that was looked at last, by depth, and their numbers.
	// States are looked at in the order in which they were found, so the next one shares most of
	// its way.
	worlds  []*world
	numbers []int
}

// world is the state of the given number and depth. It is valid until the next call.
func (x *tree) world(number, depth int) *world {
	if depth == len(x.worlds) {
		x.worlds, x.numbers = append(x.worlds, new(world)), append(x.numbers, -1)
	}
	if x.numbers[depth] != number {
		x.numbers[depth] = number
		if depth == 0 {
			x.worlds[0] = newWorld(x.model)
		} else {
			x.world(int(x.parents[number]), depth-1).copyTo(x.worlds[depth])
			x.worlds[depth].apply(x.causes[number])
		}
	}
	return x.worlds[depth]
}

// explore searches breadth first until budget states are known, so that the first violation found
// has the shortest trace. All that is kept of a state is a 64-bit hash of its description, and its
// place in the tree.
func (m model) explore(budget int) result {
	x := &tree{model: m, parents: []uint32{0}, causes: []event{{}}}
	var d describer
	var events []event
	var text []byte
	after, seen := new(world), newHashSet()
	seen.add(hash(d.describe(nil, x.world(0, 0))))
	for depth, first := 0, 0; ; depth++ {
		end := len(x.parents) // of the states of this depth
		if first == end {
			return result{states: end, depth: depth - 1, complete: true}
		}
		if m.depth != 0 && depth == m.depth {
			return result{states: end, depth: depth}
		}
		for number := first; number < end; number++ {
			w := x.world(number, depth)
			events = w.events(events[:0])
			for _, e := range events {
				w.copyTo(after)
				violation := after.apply(e)
				if violation == "" {
					text = d.describe(text[:0], after)
					if !seen.add(hash(text)) {
						continue
					}
				}
				x.parents, x.causes = append(x.parents, uint32(number)), append(x.causes, e)
				if violation != "" {
					trace := x.trace()
					return result{
						states: len(x.parents), violation: violation,
						trace: strings.Join(trace, "\n"), length: len(trace),
					}
				}
			}
			if len(x.parents) >= budget {
				return result{states: len(x.parents), depth: depth}
			}
		}
		first = end
	}
}

// trace tells what happened on the way to the last state.
func (x *tree) trace() (lines []string) {
	var way []event
	for i := uint32(len(x.parents) - 1); i != 0; i = x.parents[i] {
		way = append(way, x.causes[i])
	}
	slices.Reverse(way)
	w := newWorld(x.model)
	for i, e := range way {
		line := w.tell(e)
		w.apply(e)
		lines = append(lines, fmt.Sprintf("%3d  %-62s %s", i+1, line, w.sketch()))
	}
	return lines
}

// hashSet is a set of 64-bit hashes, eight bytes a slot, so that tens of millions of states fit
// into memory.
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
