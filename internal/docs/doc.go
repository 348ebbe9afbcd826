// Package docs tests the repository's pages: their citations, commands, Go code and rules, the migration
// guides, and the comments of the public packages.
package docs
