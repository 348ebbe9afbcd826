// Package live runs a fleet of real processes against one Redis and audits every admission of every
// one.
//
// The parent (Run) executes its own binary again once per process. A child (Child) imports hybrid
// like any service, offers load, and stamps each admission before and after the call into a file
// shared with the parent, which a kill does not take back. The parent then looks for the worst of
// all windows. FromScenario, Simulated and Compare set such a run beside a simulation of the same
// fleet.
package live
