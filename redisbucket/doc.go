// Package redisbucket keeps lease buckets in Redis. A Store is a lease.Store over go-redis, for a single
// server, Sentinel or a cluster. It needs Redis 4.0 or later, or Valkey.
//
// Most callers need only New, and pass the Store to hybrid.New. Inspect, Look and Busiest are for operators
// and tools. The Redis client's timeouts, TLS and users apply. The client never retries a lease call, because
// a retry would draw the tokens twice.
//
// Set the client's DialTimeout and ReadTimeout to about 500 ms. With the defaults of go-redis, 5 s, a hanging
// server blocks a connection for 5 s, and a cluster client finds the successor of a hanging master 5 s later.
//
// A bucket is one Redis string of binary numbers. Each holder has a smaller string in the bucket's slot. One
// Lua script executes a lease call, a second one draws of many keys, and a third one inspects and configures.
// common.lua lists the files of the scripts. protocol.Bucket computes the same as the scripts, to the last
// bit. The Go code of this package decides nothing about tokens.
//
// Goroutines may share a Store. If a Store's method returns before the Redis client does, a goroutine waits
// for the client, at most until the client's own timeouts.
package redisbucket
