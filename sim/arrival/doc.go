// Package arrival says when the requests of one simulated process come: evenly, at random, in
// bursts, by the time of the day, or as they were recorded.
//
// New makes a Stream from a Source, which names the process, its part of the load and its random
// numbers. The engine asks the Stream for one moment after the other. A moment depends on the
// Source alone, so one process more changes nothing for the others. Nothing here decides whether a
// request is admitted.
//
// Files: arrival.go the interface and even load, poisson.go random load at rates that may change
// (with the time of the day, in a flash, on and off), bursts.go heavy-tailed bursts and
// simultaneous volleys, replay.go recorded requests, shares.go how load is divided between
// processes and keys.
package arrival
