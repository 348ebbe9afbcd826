// Package examples has programs that use the limiter, each with a test. The programs are a separate module,
// so that importers of the limiter do not inherit the dependencies of the programs.
package examples
