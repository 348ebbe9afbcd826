// Package search asks many simulations one question: a Threshold says what a report must show.
package search
