// Package faults holds tests only: does the promise (docs/protocol.md section 1) hold while processes, the
// network, a server or what it stores fail? Real limiters run against real redis-server processes of each
// test's own, or in virtual time against the reference bucket where figures must be exact. A test is named
// after its row in docs/faults.md; the others try what docs/operations.md says.
//
//   - The network and the server: outage (how each Policy.Fallback gets through it), manykeys,
//     network, connect (no connection, TLS), access (permissions), topology (Sentinel, cluster),
//     clock (with testdata/clockshim.c preloaded into redis-server; and limits that change), deploy
//     (processes that are replaced by others with other limits).
//   - What is stored: loss (flush, restart, a replica that lagged), memory (eviction, damage).
//   - Processes: process (killed, stopped, starved of CPU) runs this test binary again as children,
//     whose roles are in main and whose parent is the family; closing; crowd (clones, two hundred
//     at once, more processes than tokens); modes and join (shadow, classes, reservations, joins).
//
// All share the site, one server per test, and the fleet: limiters on one store, each with its own
// client like a process, a tap on their calls and answers, load on them, and a record of every
// request that they decided. The assertions of a test have letters:
//
//   - W: checkBound, the audit of every admission over all windows;
//   - C: checkConserved, no limiter lost or forged a token;
//   - K: balance, what the bucket in Redis has and what it counts as leased;
//   - T: checkAnswered, no request waits for a client that has no answer;
//   - G: awaitLeased, the store serves again.
//
// How long a request takes and at which rate a fleet is served depends on the machine, so tests
// assert it in virtual time only: TestTheRateIsBackWithinTwoTOfAFault,
// TestRow36TheRecoveryOfTwoHundredAtOnceIsNoStorm, TestNobodyWaitsLongForAStoreThatHangs.
package faults
