// Package scenario is the question that a simulation answers: a fleet of processes, their load,
// their network, their Redis, and what goes wrong with them.
//
// Make a Scenario, set what matters, and leave the rest zero: Defaults fills it in, and Validate
// reports every violation at once, each with its path, its value and its bound. A Scenario is a
// value. Nothing here runs anything or reads a file.
//
// Files: scenario.go the types, defaults.go what a zero means, validate.go and validate_workload.go
// the bounds, violation.go how one is told, quantity.go and dist.go the quantities with their
// units, draw.go what a distribution gives.
package scenario
