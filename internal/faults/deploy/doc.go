// Package deploy is tests only: what the README advises to operators, each tried on real servers under real limiters.
//
//   - acl_test.go: the permissions that suffice, and that each of them is needed;
//   - eviction_test.go: which maxmemory-policy keeps the buckets;
//   - persistence_test.go: what a killed server still knows, with an append-only file, snapshots, or nothing;
//   - replica_test.go: a replica that lagged behind is promoted (row 16 of docs/faults.md);
//   - sentinel_test.go: three Sentinels replace a killed master (row 18);
//   - cluster_test.go: a cluster loses one of its masters, with and without a replica (rows 19 and 20).
package deploy
