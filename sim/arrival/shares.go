package arrival

import (
	"github.com/yuzhi-go/yuzhi/sim/random"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
)

// Shares divides 1 into n parts, the k-th proportional to 1/k^s.
func Shares(n int, s float64) []float64 {
	shares := make([]float64, n)
	sum := 0.0
	for i := range shares {
		shares[i] = random.Pow(float64(i+1), -s)
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// KeyWeights is how popular each key is.
func KeyWeights(k scenario.Keys) *random.Weights { return random.NewWeights(Shares(k.Count, k.Zipf)) }
