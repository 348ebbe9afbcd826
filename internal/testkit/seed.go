package testkit

import (
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// variable is the environment variable with the seed for a repeated test.
const variable = "YUZHI_SEED"

// Seed returns the seed of a random test: a new seed, or the value of YUZHI_SEED. If t fails, Seed logs the
// command that repeats the test with this seed.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, _ := newSeed(t)
	t.Cleanup(func() { logReplay(t, seed) })
	return seed
}

// Rand returns a source of random numbers that starts from Seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}

// FixedRand returns a source of random numbers with the given seed, or with YUZHI_SEED if set. FixedRand
// suits a test with a statistical tolerance, which an unlucky seed exceeds.
func FixedRand(t testing.TB, seed uint64) *rand.Rand {
	t.Helper()
	if given, ok := newSeed(t); ok {
		seed = given
	}
	t.Logf("seed %d; another: %s=SEED", seed, variable)
	return rand.New(rand.NewPCG(seed, 0))
}

// Seeds yields n new seeds, or only the value of YUZHI_SEED. Seeds stops when t has failed, and logs the
// command that repeats the test with the failing seed.
func Seeds(t testing.TB, n int) iter.Seq[uint64] {
	seed, given := newSeed(t)
	return func(yield func(uint64) bool) {
		defer func() { logReplay(t, seed) }() // deferred, because the loop's body may end the test
		for range n {
			if !yield(seed) || given || t.Failed() {
				return
			}
			seed = rand.Uint64()
		}
	}
}

// newSeed returns a new seed, or the value of YUZHI_SEED.
func newSeed(t testing.TB) (seed uint64, given bool) {
	text := os.Getenv(variable)
	if text == "" {
		return rand.Uint64(), false
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s: %v", variable, text, err)
	}
	return seed, true
}

// logReplay logs, if t has failed, the command that runs the same test with the same seed.
func logReplay(t testing.TB, seed uint64) {
	if !t.Failed() {
		return
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	t.Logf("replay: %s=%d go test ./%s -run '^%s$'", variable, seed, folder(), test)
}

// folder returns the tested package's folder within the module.
func folder() string {
	here, _ := os.Getwd()
	path, _ := filepath.Rel(ModuleRoot(), here)
	return filepath.ToSlash(path)
}

// ModuleRoot returns the root folder of the module that contains the working directory.
func ModuleRoot() string {
	root, _ := os.Getwd()
	for root != filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Dir(root)
	}
	return root
}
