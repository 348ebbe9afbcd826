// Package redisbucket keeps lease buckets in Redis: a lease.Store over go-redis, for a single
// server, Sentinel or a cluster, and for a ring where limits need not hold (Config.AllowRing).
//
// Most callers need New only, and give its result to hybrid.New. Inspect, Look and Scan are for
// people and tools that look at buckets. The client stays the caller's: its timeouts, its TLS and
// its users apply, but its retries do not, as a lease call that is sent twice would draw twice.
// Redis 4.0 or later, or Valkey, is needed.
//
// Set the client's DialTimeout and ReadTimeout to about 500 ms. With those of go-redis, 5 s, a
// connection to a server that hangs stays taken for as long, and a client of a cluster finds the
// successor of a master that hangs 5 s later.
//
// A bucket is one Redis string of binary numbers, and beside it, in the same slot, a smaller one
// for each holder. One Lua script executes a lease call, one draws of many keys, another inspects
// and configures.
// protocol.Bucket is their reference, and they agree with it to the last bit.
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
// A Store may be shared between goroutines. Where a call ends before the client does, a goroutine
// goes on waiting for the client, until the client's own timeouts.
package redisbucket
