package scenario_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/sim/scenario"
	"github.com/yuzhi-go/yuzhi/sim/scenario/file"
)

// Each value is wrong by itself or beside the others. The error begins with the path of the last one.
func TestValidateNamesFieldValueAndBound(t *testing.T) {
	valid, err := file.Parse("valid.yaml", []byte(`
duration: 30s
limits: [1000/s, 6000/m burst 300]
groups:
- {name: web, count: 20, scale: [{at: 1s, count: 40}, {at: 1s, count: 0}]}
- {count: 5, workload: {kind: constant}}
network: {partitions: [{at: 1s, for: 1s, group: group-1}]}
redis:
  shards: 2
  faults: [{kind: failover, at: 1s}, {kind: hang, at: 1s, for: 1ns, shard: 2}]
`))
	testkit.NoErr(t, err)
	for assignments, want := range map[string]string{
		"warmup=30s":                       "is 30s, must be 0s to 29.999999999s",
		"seed=9007199254740992":            "is 9007199254740992, must be 1 to 9007199254740991",
		"reps=10001":                       "is 10001, must be 1 to 10000",
		"call_timeout=2m":                  "is 2m0s, must be 1µs to 1m0s",
		"keys.count=1000001":               "is 1000001, must be 1 to 1000000",
		"keys.zipf=11":                     "is 11, must be 0 to 10",
		"limits=[]":                        "has 0 entries, must have 1 to 4",
		"limits=[1/s, 1/s, 1/s, 1/s, 1/s]": "has 5 entries, must have 1 to 4",
		"policy.target=1ns":                "is 1ns, must be 1ms to 30m0s",
		"policy.ttl=2h":                    "is 2h0m0s, must be 2ms to",
		"policy.min_batch=-3":              "is -3, must be at least 1",
		"limits=[1000/s]; policy.overcommit=4503599627370495": "is 4503599627370495, must be at most 4503",
		"clock.offset=uniform(0s,1000000h)":                   "is uniform(0s,1000000h0m0s), must be strictly",
		"clock.drift=1e6ppm":                                  "is 1e+06ppm, must be strictly within +-1000000",
		"network.partitions=[]; groups[1].name=web":           `is "web", which is the name of groups[0] too`,
		"groups[0].weight=-1":                                 "is -1, must be 1 to",
		"groups[0].headroom=1":                                "is 1, must be 0 to below 1",
		"groups[0].skew=11":                                   "is 11, must be 0 to 10",
		"groups[0].round_trip=-1ms":                           "is -1ms, must not be negative",
		"groups[0].pauses.every=1ns":                          "is 1ns, must be 1ms to",
		"groups[0].restarts.for=normal(-1ns,1ns)":             "is normal(-1ns,1ns), must not",
		"groups[0].pauses.every=2s; groups[0].pauses.at=1s":   "is 1s, and every is 2s, but stops happen",
		"groups[0].scale[1].at=500ms":                         "is 500ms, must not be before",
		"groups[0].scale[1].at=31s":                           "is 31s, must be 0s to 30s",

		"rivals=[central, a]; rivals[1]=centrl":                   `is "centrl", must be one of `,
		"workload.kind=possion":                                   `is "possion", must be one of constant, poisson`,
		"workload.verb=ask":                                       `is "ask", must be one of allow, try, wait`,
		"workload.rate=1e10/s":                                    "is 1e+10/s, must be 0/s to 1e+09/s",
		"workload.rate=5/s; workload.load=2":                      "is 2, and rate is 5/s, but both set",
		"workload.cost=301":                                       "is 301, must be at most the smallest burst (30",
		"policy.headroom=0.5; workload.cost=151":                  "is 151, must be at most the smallest burst, l",
		"workload.actual=-1":                                      "is -1, must be 0 or more, with a mean",
		"workload.actual=exp(0.5)":                                "is exp(0.5), must be 0 or more, with a mean",
		"workload.actual=2e9":                                     "is 2e+09, must be strictly within",
		"workload.on=1ns":                                         "is 1ns, must be 1µs to",
		"workload.factor=5":                                       "is 5, which a workload of kind poisson",
		"workload.kind=adversary; workload.load=2":                "is 2, which a workload of kind",
		"workload.deadline=2s":                                    "is 2s, which the verb allow does not",
		"workload.kind=flash; workload.at=31s":                    "is 31s, must be 0s to 30s",
		"workload={kind: sync, every: 500ms}; workload.within=1s": "is 1s, must be 0s to 500ms",
		"workload.hold=exp(1000h)":                                "is exp(1000h0m0s), must be strictly within",

		"network.partitions[0].at=40s":   "is 40s, must be 0s to 30s",
		"network.partitions[0].for=0s":   "is 0s, must be 1ns to",
		"network.partitions[0].group=db": `is "db", must be the name`,
		"redis.shards=16385":             "is 16385, must be 1 to 16384",
		"redis.faults[0].kind=fire":      `is "fire", must be one of outage`,
		"redis.faults[0].at=40s":         "is 40s, must be 0s to 30s",
		"redis.faults[1].for=0s":         "is 0s, must be 1ns to",
		"redis.faults[1].shard=3":        "is 3, must be 0 to 2",
	} {
		s, all := valid, strings.Split(assignments, "; ")
		testkit.NoErr(t, file.Set(&s, all...))
		path, _, _ := strings.Cut(all[len(all)-1], "=")
		err := s.Validate()
		begins := strings.HasPrefix(fmt.Sprint(err), "sim: invalid scenario: "+path+" "+want)
		one := errors.Is(err, scenario.ErrInvalidScenario) && begins && !strings.Contains(err.Error(), "\n")
		testkit.Check(t, one, "%s: %v\nshould be one error that begins with %s %s", assignments, err, path, want)
	}
}
