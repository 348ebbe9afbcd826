//go:build !race

package process

// longRun is how many tokens a process gets in the long run of the tests of fairness.
const longRun = 10_000
