// Package examples has programs that use the limiter, each with a test. The programs are a separate module,
// because importers of the limiter must not inherit the dependencies of the programs.
package examples
