package rival

// pairs holds what processes keep of keys. Only pairs that have met take memory: most processes of a large fleet never
// see most keys. It is a map for looking up, never to go through.
type pairs[T any] struct{ kept map[pair]*T }

type pair struct{ p, key int }

func newPairs[T any]() pairs[T] { return pairs[T]{map[pair]*T{}} }

// of is what p keeps of a key, zero at first.
func (ps pairs[T]) of(p, key int) *T {
	x := ps.kept[pair{p, key}]
	if x == nil {
		x = new(T)
		ps.kept[pair{p, key}] = x
	}
	return x
}
