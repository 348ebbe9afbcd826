// Package engine simulates a fleet of limiters: its processes, the network between, and Redis,
// event after event on a virtual clock. A Runner runs a Scenario as often as it says, each time
// with another seed, and makes a Report of what it saw.
//
// Each part of the simulated world has its own data and makes events. A replication brings each
// event to the parts that it concerns. The files follow the way of a request:
//
//   - runner.go: the replications, side by side; replication.go: one of them; agenda.go: its time
//     and events.
//   - demand.go: who asks, and when.
//   - fleet.go, process.go: the processes, and how they start, stop, end and scale.
//   - entry.go, calls.go: one key in one process, around the very code that production runs; and
//     the adversary, who spends a whole lease just before it ends.
//   - network.go: lease calls on their way, in batches; what is lost, late or sent twice.
//   - redis.go: the shards, their queues and their buckets; faults.go: what goes wrong with them.
//   - books.go: what was asked and decided, and whether the promise was kept; conservation.go:
//     where every token went.
//
// A scenario and a seed give the same Report to the last bit: one goroutine runs a replication,
// every stream of random numbers belongs to one entity, and no wall clock is read. What processes
// decide about tokens is decided by package lease; nothing here repeats it.
package engine
