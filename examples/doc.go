// Package examples holds programs that show the limiter in use, each with a test. They are a
// separate module, so that importers of the limiter do not inherit their dependencies.
package examples
