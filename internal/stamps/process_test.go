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
	return putUntilKilled(f)
}

// answer stamps the present whenever it is asked.
func answer(f *File) error {
	in := bufio.NewReader(os.Stdin)
	for slot := 0; ; slot++ {
		if _, err := in.ReadByte(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		before := Now()
		f.Put(slot, before, After())
		if _, err := os.Stdout.Write([]byte{'.'}); err != nil {
			return err
		}
	}
}

// putsMost is the number of admissions that a goroutine of a child records, if it is not killed before.
const putsMost = 1 << 18

// putUntilKilled counts an admission as offered once it is recorded. A child that has recorded
// all waits for the kill: its parent may have been stopped meanwhile.
func putUntilKilled(f *File) error {
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range putsMost {
				before := Now()
				f.Put(w*putsMost+i, before, sealOf(before))
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
	all := spans(f)
	for i, span := range all {
		m := around[i]
		if span.Before < m.asked || span.After > m.heard+1 || span.Before > span.After {
			t.Fatalf("the child answered in [%d, %d], the parent asked and heard in [%d, %d]",
				span.Before, span.After, m.asked, m.heard)
		}
	}
	testkit.Check(t, len(all) == rounds, "%d answers to %d questions", len(all), rounds)
}

func TestAKilledProcessLeavesWholeRecordsAndLosesNone(t *testing.T) {
	rng := testkit.Rand(t)
	for range testkit.ShortOrLong(t, 5, 25, "kills") {
		t.Run("kill", func(t *testing.T) {
			// Given a child whose goroutines record as fast as they can
			f, path := created(t, writers*putsMost)
			victim := child(t, "put", path)
			_, err := victim.StdinPipe() // which says nothing
			testkit.NoErr(t, err)
			testkit.NoErr(t, victim.Start())
			gone := make(chan error, 1)
			go func() { gone <- victim.Wait() }()

			// When it is killed in the middle of it
			for enough := rng.Int64N(100_000); f.Offered().Load() <= enough; runtime.Gosched() {
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

			// Then every record is whole, and none is lost that was counted as offered. A process that comes
			// later finds the same.
			for _, reader := range []*File{f, opened(t, path)} {
				all := spans(reader)
				for _, s := range all {
					testkit.Must(t, s.After == sealOf(s.Before), "half a record: %+v", s)
				}
				told, sure := int64(len(all)), reader.Offered().Load()
				testkit.Check(t, told >= sure && told <= sure+writers, "%d records of %d to %d", told, sure, sure+writers)
				if trips := reader.RoundTrips().Load(); trips > sure || trips < sure-writers {
					t.Errorf("counters torn apart: %d offered, %d round trips", sure, trips)
				}
			}
		})
	}
}
