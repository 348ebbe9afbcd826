// Package testkit is what the tests of several packages share: waiting for a condition, seeds that
// a failure prints, an index of fairness. Only tests, and packages that only tests import, use it.
package testkit
