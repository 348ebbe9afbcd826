// Package house has tests of the whole module's layout: which package imports which, and how the files
// of a package refer to each other. It has no code.
package house
