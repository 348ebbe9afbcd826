// Package redisbucket keeps lease buckets in Redis: a lease.Store over go-redis, for a single server,
// Sentinel or a cluster, and for a ring if limits need not hold (Config.AllowRing).
//
// Most callers need New only, and pass its result to hybrid.New. Inspect, Look and Scan are for
// operators and tools. The client's timeouts, TLS and users apply. Its retries do not: a lease call
// that is sent twice would draw twice. The package needs Redis 4.0 or later, or Valkey.
//
// Set the client's DialTimeout and ReadTimeout to about 500 ms. With the defaults of go-redis, 5 s, a
// hanging server blocks a connection for 5 s, and a cluster client finds the successor of a hanging
// master 5 s later.
//
// A bucket is one Redis string of binary numbers. Each holder has a smaller one in the same slot. One
// Lua script executes a lease call, one executes draws of many keys, and one inspects and configures.
// protocol.Bucket is their reference: they agree with it to the last bit.
//
// The rules are those of docs/protocol.md, in Lua:
//
//   - common.lua: numbers, configurations, room, refill, how long a bucket is remembered.
//   - draw.lua: a draw of a bucket at rest, in one read and one write; draws.lua: of many buckets.
//   - window.lua: sliding windows and calendars, for buckets that have such limits.
//   - past.lua: what was used of limits that are not in force any more.
//   - open.lua: what a call finds, steps 1 to 3. change.lua: lost state, changed limits, T.
//   - lease.lua: the record, steps 4 to 7, the fair share. configure.lua: all other operations.
//   - close.lua: all other writes.
//
// Go decides nothing about tokens:
//
//   - store.go: Config, New, the nodes of a client.
//   - exchange.go: lease calls, grouped by the node that serves them. group.go: what travels in one
//     command; together.go: whether draws of several keys may. configure.go: everything else, and
//     connections opened ahead.
//   - pipeline.go: one round trip, and what is known of it while it has not gone out. script.go:
//     how a script is sent, once.
//   - encode.go and reply.go: Redis keys, and the numbers that go and come. errors.go: what an
//     error says.
//   - view.go: one bucket with its holders, read without a script; scan.go: the counters of all;
//     parse.go, parse_window.go and parse_past.go: what is stored, as Go reads it.
//
// Goroutines may share a Store. If a call ends before the client does, a goroutine waits for the
// client, until the client's own timeouts.
package redisbucket
