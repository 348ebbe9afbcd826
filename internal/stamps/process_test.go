package stamps

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// The test binary runs itself as a child process; these variables say that it is one, and on which file.
const (
	roleVar = "YUZHI_STAMPS_ROLE"
	fileVar = "YUZHI_STAMPS_FILE"
)

// writers is the number of goroutines of a child that appends.
const writers = 4

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := beChild(role, os.Getenv(fileVar)); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(3)
	}
}

func beChild(role, path string) error {
	f, err := Open(path)
	if err != nil {
		return err
	}
	if role == "answer" {
		return answer(f)
	}
	return appendUntilKilled(f)
}

// answer stamps the present whenever it is asked.
func answer(f *File) error {
	in := bufio.NewReader(os.Stdin)
	for {
		if _, err := in.ReadByte(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		before := Now()
		f.Append(before, After())
		if _, err := os.Stdout.Write([]byte{'.'}); err != nil {
			return err
		}
	}
}

// appendsMost is the number of admissions that a goroutine of a child appends, if it is not killed before.
const appendsMost = 1 << 18

// appendUntilKilled counts an admission as offered once it is appended. A child that has appended
// all waits for the kill: its parent may have been stopped meanwhile.
func appendUntilKilled(f *File) error {
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range appendsMost {
				before := Now()
				f.Append(before, sealOf(before))
				f.Offered().Add(1)
				f.RoundTrips().Add(1)
			}
		})
	}
	wg.Wait()
	_, err := os.Stdin.Read(make([]byte, 1))
	return err
}

func child(t *testing.T, role, path string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	testkit.NoErr(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), roleVar+"="+role, fileVar+"="+path)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestTwoProcessesAgreeOnTheTime(t *testing.T) {
	rounds := testkit.ShortOrLong(t, 500, 5000, "questions")
	f, path := created(t, rounds)
	other := child(t, "answer", path)
	ask, err := other.StdinPipe()
	testkit.NoErr(t, err)
	reply, err := other.StdoutPipe()
	testkit.NoErr(t, err)
	testkit.NoErr(t, other.Start())

	// Given moments of the parent around each answer of the child
	type moments struct{ asked, heard int64 }
	var around []moments
	for range rounds {
		m := moments{asked: Now()}
		if _, err := ask.Write([]byte{'?'}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(reply, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		m.heard = After()
		around = append(around, m)
	}
	testkit.NoErr(t, ask.Close())
	testkit.NoErr(t, other.Wait())

	// Then the child's span lies within the parent's: both read one clock.
	spans := f.AppendSpans(nil)
	for i, span := range spans {
		m := around[i]
		if span.Before < m.asked || span.After > m.heard+1 || span.Before > span.After {
			t.Fatalf("the child answered in [%d, %d], the parent asked and heard in [%d, %d]",
				span.Before, span.After, m.asked, m.heard)
		}
	}
	testkit.Check(t, len(spans) == rounds, "%d answers to %d questions", len(spans), rounds)
}

func TestAKilledProcessLeavesWholeRecordsAndLosesNone(t *testing.T) {
	rng := testkit.Rand(t)
	for range testkit.ShortOrLong(t, 5, 25, "kills") {
		t.Run("kill", func(t *testing.T) {
			// Given a child whose goroutines append as fast as they can
			f, path := created(t, writers*appendsMost)
			victim := child(t, "append", path)
			_, err := victim.StdinPipe() // which says nothing
			testkit.NoErr(t, err)
			testkit.NoErr(t, victim.Start())
			gone := make(chan error, 1)
			go func() { gone <- victim.Wait() }()

			// When it is killed in the middle of it
			for enough := rng.Int64N(100_000); f.head.reserved.Load() <= enough; runtime.Gosched() {
				select {
				case err := <-gone:
					t.Fatalf("the child ended by itself: %v", err)
				default:
				}
			}
			testkit.NoErr(t, victim.Process.Kill())
			<-gone
			// A kill is -1 on Unix and 1 on Windows.
			if status := victim.ProcessState.ExitCode(); status != -1 && status != 1 {
				t.Fatalf("the child ended by %v, not by the kill", victim.ProcessState)
			}

			// Then every record is whole, none is lost that was appended, and at most the one that
			// each goroutine was at is missing. A process that comes later finds the same.
			for _, reader := range []*File{f, opened(t, path)} {
				spans := reader.AppendSpans(nil)
				for _, s := range spans {
					testkit.Must(t, s.After == sealOf(s.Before), "half a record: %+v", s)
				}
				told, sure, asked := int64(len(spans)), reader.Offered().Load(), reader.head.reserved.Load()
				testkit.Check(t, told >= sure && told <= sure+writers && asked <= told+writers,
					"%d records of %d to %d appended, in %d slots", told, sure, sure+writers, asked)
				if trips := reader.RoundTrips().Load(); trips > sure || trips < sure-writers {
					t.Errorf("counters torn apart: %d offered, %d round trips", sure, trips)
				}
			}
		})
	}
}
