package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
)

// The processes of a fleet are this test binary, started again.
func TestMain(m *testing.M) {
	live.Child()
	m.Run()
}

// leasesim runs one command line and returns its exit status and output.
func leasesim(t *testing.T, line string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), strings.Fields(line), &out, &errs)
	return status, out.String(), errs.String()
}

func liveJSON(t *testing.T, line string) (status int, r live.Report) {
	t.Helper()
	status, stdout, stderr := leasesim(t, "live --out json "+line)
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("leasesim live %s: status %d, output %q, %s: %v", line, status, stdout, stderr, err)
	}
	return status, r
}

func TestARedisThatIsNotThereIsStatus1(t *testing.T) {
	if status, _, stderr := leasesim(t, "live --redis 127.0.0.1:1"); status != 1 || !strings.Contains(stderr, "127.0.0.1:1 does not answer") {
		t.Errorf("status %d, %q", status, stderr)
	}
}

func TestScriptsArePrintedByteForByte(t *testing.T) {
	for name, source := range redisbucket.Scripts() {
		if status, stdout, stderr := leasesim(t, "scripts "+name); status != 0 || stdout != source || stderr != "" {
			t.Errorf("%s: status %d, %d bytes, %s", name, status, len(stdout), stderr)
		}
	}
}

func TestOneForgedAdmissionTooManyIsStatus3(t *testing.T) {
	// Given a fleet without load, in which one process claims to have admitted exactly the burst at
	// one instant,
	status, r := liveJSON(t, "--duration 100ms --offered 0 --rate 10 --burst 500 --forge 500")
	// then the bound holds;
	if status != 0 || r.BoundExceededBy != 0 || r.Admitted != 500 {
		t.Errorf("500 of 500: status %d, %+v", status, r)
	}
	// and when it claims one more,
	status, r = liveJSON(t, "--duration 100ms --offered 0 --rate 10 --burst 500 --forge 501")
	// then the command says so.
	if status != 3 || r.BoundExceededBy != 1 {
		t.Errorf("501 of 500: status %d, %+v", status, r)
	}
}

func TestTheFleetKeepsTheBoundOnTheEmbeddedRedis(t *testing.T) {
	for _, shape := range live.Shapes {
		checkFleet(t, "--processes 3 --rate 5000 --burst 1000 --duration 1s --shape "+shape)
	}
}

func TestTheFleetKeepsTheBoundOnARealRedis(t *testing.T) {
	addr := redistest.Start(t).Addr
	for _, shape := range live.Shapes {
		checkFleet(t, "--redis "+addr+" --processes 3 --rate 5000 --burst 1000 --overcommit 100 --duration 1s --shape "+shape)
	}
}

func TestTheFleetKeepsTheBoundOnACluster(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes", "--requirepass", "secret")
	admin := redis.NewClient(&redis.Options{Addr: server.Addr, Password: "secret"})
	defer admin.Close()
	if err := admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok"); {
		if time.Now().After(deadline) {
			t.Fatal("the cluster is not up after 20 s")
		}
		time.Sleep(10 * time.Millisecond) // the pace of polling
	}
	checkFleet(t, "--redis redis+cluster://:secret@"+server.Addr+" --processes 3 --rate 5000 --burst 1000 --duration 1s")
}

func TestAKilledAndAStoppedProcessKeepTheBound(t *testing.T) {
	addr := redistest.Start(t).Addr
	r := checkFleet(t, "--redis "+addr+" --processes 3 --rate 5000 --burst 1000 --duration 2s --kill-after 500ms --stop-after 300ms --strict")
	if r.Processes[0].Fate != "stopped" || r.Processes[2].Fate != "killed" {
		t.Errorf("fates %+v", r.Processes)
	}
	if r.Processes[2].Admitted == 0 {
		t.Error("nothing that the killed process admitted was kept")
	}
}

// checkFleet runs a fleet and checks what must hold on any machine, however slow.
func checkFleet(t *testing.T, line string) live.Report {
	t.Helper()
	status, r := liveJSON(t, line)
	if status != 0 || r.BoundExceededBy != 0 {
		t.Fatalf("leasesim live %s: status %d, %+v", line, status, r)
	}
	var admitted, offered, trips int64
	for _, p := range r.Processes {
		admitted += p.Admitted
		offered += p.Offered
		trips += p.RoundTrips
	}
	if admitted != r.Admitted || offered != r.Offered || trips != r.RoundTrips {
		t.Errorf("leasesim live %s: the parts do not add up: %+v", line, r)
	}
	if r.Admitted == 0 || r.Admitted > r.Offered || r.RoundTrips == 0 {
		t.Errorf("leasesim live %s: %+v", line, r)
	}
	t.Logf("leasesim live %s: admitted %d of %d, %.2f %% of what the bucket gave, %d round trips, Jain %.4f",
		line, r.Admitted, r.Offered, 100*r.AdmittedOfEntitlement, r.RoundTrips, r.Jain)
	return r
}

func TestTheTableNamesEverything(t *testing.T) {
	status, stdout, stderr := leasesim(t, "live --processes 2 --rate 100 --burst 50 --duration 200ms")
	if status != 0 {
		t.Fatal(status, stderr)
	}
	for _, want := range []string{"embedded", "admitted", "offered", "worst window", "the bound holds", "round trips", "p50", "p99", "Jain's index", "share"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestHelpShowsExamples(t *testing.T) {
	for _, line := range []string{"", "--help", "live --help"} {
		if status, stdout, _ := leasesim(t, line); status != 0 || !strings.Contains(stdout, "leasesim live --redis") {
			t.Errorf("leasesim %s: status %d\n%s", line, status, stdout)
		}
	}
}

func TestAnInterruptedLiveRunSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if status := run(ctx, []string{"live", "--processes", "1"}, &stdout, &stderr); status != exitInterrupted || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("status %d, %s", status, stderr.String())
	}
}
