//go:build race

package process

// longRun is how many tokens a process gets in the long run of the tests of fairness: the race detector makes
// virtual time ten times as dear.
const longRun = 500
