package testkit

// Jain is Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 where all shares are equal, 1/n where
// one of n has everything.
func Jain(shares []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	return sum * sum / (float64(len(shares)) * squares)
}
