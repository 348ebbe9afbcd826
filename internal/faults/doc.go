// Package faults tests that the promise (docs/protocol.md section 1) is kept while processes, the network, a
// server or its data fail. Each test runs real limiters against its own redis-server processes. A test with a
// row number is described in docs/faults.md; the other tests check docs/operations.md.
//
//   - Files about the network and the server: outage (each Policy.Fallback), network, connect (no connection,
//     TLS), access (permissions), topology (Sentinel, cluster), clock (jumps of a clock, changes of limits).
//   - Files about stored state: loss (flush, restart, a replica that lagged), memory (eviction).
//   - Files about processes: process (killed, starved of CPU), which runs this test binary again as children
//     of the family, with roles in main; crowd (clones, two hundred at once, more processes than tokens).
//
// All tests use the types site and fleet. A site starts one server per test. A fleet has limiters on one
// store, each with its own client like a process, sends requests to the limiters, and records calls, answers
// and decisions. The assertions of a test have letters:
//
//   - W: checkBound, the audit of every admission over all windows;
//   - C: checkConserved, no limiter lost or forged a token;
//   - K: settled, the tokens in the bucket in Redis once none is leased;
//   - T: checkAnswered, no request waits for a client that has no answer;
//   - G: awaitLeased, the store serves again.
//
// The latency of a request and the rate of a fleet depend on the machine, so only tests in virtual time
// assert them, against the reference bucket: TestTheRateIsBackWithinTwoTOfAFault,
// TestRow36TheRecoveryOfTwoHundredAtOnceIsNoStorm, TestNobodyWaitsLongForAStoreThatHangs.
package faults
