// Package house tests the layout of the whole module: which package imports which, and how the files of a
// package refer to each other.
package house
