package report

import "slices"

// Fairness compares what each process was admitted with its max-min share. Who asks for less than
// its part by weight has that as its share; the others divide the rest by weight.
type fairness struct {
	Shares      []float64
	Jain, Worst float64
}

// FairnessOf judges the processes that asked for anything. The shares add up to what was admitted.
func FairnessOf(offered, admitted []int64, weights []int64) fairness {
	f := fairness{Shares: maxMin(offered, weights, sum(admitted)), Jain: 1, Worst: 1}
	total, squares, n := 0.0, 0.0, 0
	for i, share := range f.Shares {
		if share <= 0 {
			continue
		}
		x := float64(admitted[i]) / share
		f.Worst = min(f.Worst, x)
		total += x
		squares += float64(x * x)
		n++
	}
	if squares > 0 {
		f.Jain = float64(total*total) / float64(float64(n)*squares)
	}
	return f
}

// maxMin divides total by weight. Nobody gets more than it asked for.
func maxMin(asked, weights []int64, total int64) []float64 {
	shares := make([]float64, len(asked))
	order := make([]int, 0, len(asked))
	weight := int64(0)
	for i := range asked {
		if asked[i] > 0 {
			order = append(order, i)
			weight += weights[i]
		}
	}
	// Who asked for least for its weight comes first. Ties go by index, so that the order is the
	// same on every machine.
	slices.SortFunc(order, func(a, b int) int {
		x, y := float64(asked[a])/float64(weights[a]), float64(asked[b])/float64(weights[b])
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return a - b
	})
	left := float64(total)
	for _, i := range order {
		shares[i] = min(float64(asked[i]), float64(left*float64(weights[i]))/float64(weight))
		left -= shares[i]
		weight -= weights[i]
	}
	return shares
}

func sum(xs []int64) (n int64) {
	for _, x := range xs {
		n += x
	}
	return n
}
