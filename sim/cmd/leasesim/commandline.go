package main

import (
	"fmt"
	"regexp"
	"strings"
)

// commandLine is what to type to see the same figures again, for a shell: as this program was
// called, with the seed.
func (p *program) commandLine(seed uint64) string {
	words := []string{"leasesim"}
	seeded := false
	for _, arg := range p.args {
		seeded = seeded || arg == "--seed" || strings.HasPrefix(arg, "--seed=")
		words = append(words, quoted(arg))
	}
	if !seeded {
		words = append(words, fmt.Sprintf("--seed %d", seed))
	}
	return strings.Join(words, " ")
}

// plain are words that no shell reads anything into.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:=,%+@-]+$`)

// quoted is a word as a POSIX shell takes it back.
func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
