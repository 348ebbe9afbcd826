// Package faults holds tests only: what becomes of the promise (docs/protocol.md section 1) while
// processes, the network, a server or what it stores fail. Real limiters run against real
// redis-server processes of each test's own, or in virtual time against the reference bucket where
// figures must be exact. A test is named after its row in docs/faults.md; the others try what
// docs/operations.md says.
//
//   - The network and the server: down, hung, late, link, lost, slow, foreign, refused, script;
//     modes is an outage as each Policy.Fallback gets through it, recovery its end for two hundred
//     at once.
//   - What is stored: flush, restart, evict, memory, damage, clock (with testdata/clockshim.c
//     preloaded into redis-server), change (of limits, with a deploy under way).
//   - Processes: killed, stopped, starved (of CPU) and their helpers run this test binary again as
//     children; clone, closing and scarce (more processes than tokens) run in one process.
//   - Deployments: acl, connect (TLS), replica, sentinel, cluster, persistence, eviction.
//
// All share the fleet: limiters on one Redis, each with a client of its own as if it were a
// process, load on them, and a record of every request that they decided. What a test asserts of it
// has a letter:
//
//   - W: CheckBound, the audit of every admission over all windows;
//   - C: CheckConserved, no limiter lost or forged a token;
//   - D: tape.replay, the reference grants what Redis granted, call by call;
//   - K: Balance, what the bucket in Redis has and what it counts as leased;
//   - T: CheckNobodyWaited, how long requests took;
//   - G: AwaitRecovery, the rate is reached again.
package faults
