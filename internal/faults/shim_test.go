package faults

import (
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
)

// wallClock is the wall clock of one running server, which a test may step.
type wallClock struct {
	file   *os.File
	offset time.Duration
}

// startWithClock starts a server under testdata/clockshim.c. Tests that use it are not parallel: it
// works through the environment, which every process that is started at that time inherits.
func startWithClock(t *testing.T, args ...string) (*redistest.Server, *wallClock) {
	t.Helper()
	redistest.Require(t)
	compiler, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		const hint = "the clock shim needs Linux and cc (apt-get install gcc)"
		if os.Getenv("REQUIRE_REDIS") == "1" {
			t.Fatal(hint)
		}
		t.Skip(hint)
	}
	dir := t.TempDir()
	shim := filepath.Join(dir, "clockshim.so")
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O2", "-o", shim,
		filepath.Join("testdata", "clockshim.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := &wallClock{}
	if c.file, err = os.Create(filepath.Join(dir, "offset")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.file.Close() })
	c.step(t, 0)
	t.Setenv("CLOCKSHIM_FILE", c.file.Name())
	t.Setenv("LD_PRELOAD", shim)
	server := redistest.Start(t, args...)
	os.Unsetenv("LD_PRELOAD") // Setenv restores what was there before

	// A server that was linked otherwise would not notice, and every test would pass.
	rdb := client(t, server.Addr)
	c.step(t, -24*time.Hour)
	if off := time.Since(serverTime(t, rdb)); off < 23*time.Hour {
		t.Fatalf("the shim has no effect on this redis-server: its clock is %v behind", off)
	}
	c.step(t, 24*time.Hour)
	return server, c
}

// step moves the server's wall clock by d, at once.
func (c *wallClock) step(t *testing.T, d time.Duration) {
	t.Helper()
	c.offset += d
	_, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.offset.Microseconds())), 0)
	must(t, err)
}

func serverTime(t *testing.T, rdb *redis.Client) time.Time {
	t.Helper()
	now, err := rdb.Time(context.Background()).Result()
	must(t, err)
	return now
}
