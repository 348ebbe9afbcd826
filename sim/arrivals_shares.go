package sim

import "github.com/yuzhi-go/yuzhi/sim/random"

// zipfShares is n parts of one, the k-th proportional to 1/k^s.
func zipfShares(n int, s float64) []float64 {
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

// keyWeights is how popular each key is.
func keyWeights(k Keys) *random.Weights { return random.NewWeights(zipfShares(k.Count, k.Zipf)) }
