package lease

import "slices"

func near(n int64) byte { return byte(min(max(n, 0), codecFar)) }

func rank(of []int64, n int64) byte {
	i, found := slices.BinarySearch(of, n)
	if !found {
		return 0
	}
	return byte(i + 1)
}

func sortedSet(s []int64) []int64 {
	slices.Sort(s)
	return slices.Compact(s)
}

func (w *world) ttlCode(us int64) byte {
	switch us {
	case 0:
		return 0
	case w.model.ttl:
		return 1
	}
	return 2
}

func (w *world) ttlOf(code byte) int64 { return [...]int64{0, w.model.ttl, w.ttl2}[code] }

func flags(bits ...bool) (b byte) {
	for i, on := range bits {
		if on {
			b |= 1 << i
		}
	}
	return b
}
