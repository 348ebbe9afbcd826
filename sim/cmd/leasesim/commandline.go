package main

import (
	"fmt"
	"regexp"
	"strings"
)

// commandLine is what to type to see the same figures again, for a shell: as this program was
// called, but for where the report goes, and with the seed.
func (p *program) commandLine(seed uint64) string {
	words := []string{"leasesim"}
	seeded := false
	for i := 0; i < len(p.args); i++ {
		arg := p.args[i]
		switch {
		case arg == "-o" || arg == "--output":
			i++
			continue
		case strings.HasPrefix(arg, "--output=") || strings.HasPrefix(arg, "-o"):
			continue
		case arg == "--seed" || strings.HasPrefix(arg, "--seed="):
			seeded = true
		}
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
