// Package sweep asks the same question at every point of a grid of parameters: Axes say what varies, a Sweep runs a
// scenario at every point of their grid, and a Report holds the figures, each point's difference from a base point, and
// which points no other point beats.
//
// Every point sees the same seeds, so that two points differ by their parameters and not by their luck: the
// difference of two replications with the same seed varies far less than either. The intervals of the differences
// are those of paired samples.
//
// Front and Each are here for package planner too.
package sweep
