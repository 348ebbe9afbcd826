// Package search asks many simulations one question.
//
//   - Threshold: does a report show what it must? FIGURE OP NUMBER.
//   - Sweep: how do the figures change over a grid of parameters? Each Axis is one parameter.
//   - Planner: which lease policy asks Redis the least and still meets what a user demands?
//
// Everything that one question compares runs on the same seeds, so that two scenarios differ by
// their parameters and not by their luck. The answers are the same on every machine: effort is
// bounded in simulated requests, never in seconds. Package view shows them.
//
// Files: threshold.go and figure.go what a report must show, and the names of its figures; axis.go
// and sweep.go the grid. A plan is asked for in plan.go: target.go what must hold, space.go which
// policies there are, effort.go how long to try, lab.go many simulations at once, rank.go who is
// better, confirm.go the winner on fresh seeds, stress.go and under worse conditions,
// plan_report.go and gocode.go the answer.
package search
