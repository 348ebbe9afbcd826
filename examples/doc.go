// Package examples holds programs that show the limiter in use, each with a test. They are a module
// of their own, so that who imports the limiter does not inherit what they need.
package examples
