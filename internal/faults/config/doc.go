// Package config holds the tests of docs/faults.md that change a fleet's limits while it runs, on real servers: limits set
// with leases out, and a deploy during which two configurations are in use.
package config
