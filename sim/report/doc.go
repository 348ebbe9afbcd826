// Package report is the answer of a simulation: figures over its replications, each with its mean,
// its interval and its worst seed.
//
// The engine hands over one Outcome for each replication, and Of makes a Report of them. The JSON
// keys of a Report are part of the command's interface. Nothing here simulates, and nothing here
// writes text.
//
// Files: report.go the types, figures.go their names, outcome.go from outcomes to figures,
// interval.go means and intervals; and what the engine counts with: tally.go one decision beside
// that of a central bucket, waits.go how long requests waited, recorder.go points over time,
// fairness.go shares.
package report
