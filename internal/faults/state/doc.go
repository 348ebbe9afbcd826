// Package state is tests only: what becomes of the promise when the state in Redis is lost, evicted, damaged, or aged by
// a clock that jumps. Real limiters run on real servers, and each test is named after its row in docs/faults.md:
//
//   - 12: FLUSHALL, and a restart of a server that keeps everything in memory;
//   - 13: kill -9 and a restart from the append-only file;
//   - 14: eviction of a bucket, or of a holder's record beside it;
//   - 15: out of memory with noeviction;
//   - 21: keys of any bytes on a cluster;
//   - 25: fields that are not what this library wrote;
//   - 27 and 28: the server's clock steps by an hour (testdata/clockshim.c, preloaded into redis-server).
package state
