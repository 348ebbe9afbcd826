// Package search asks many simulations one question.
//
//   - Threshold: does a report show what it must? FIGURE OP NUMBER.
//   - Sweep: how do the figures change over a grid of parameters? Each Axis is one parameter.
//   - Planner: which lease policy asks Redis the least and still meets what a user demands?
//
// Everything that one question compares runs on the same seeds, so that two scenarios differ by
// their parameters and not by their luck. The answers are the same on every machine: effort is
// bounded in simulated requests, never in seconds. Package view shows them.
package search
