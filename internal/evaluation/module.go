package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// inModule runs a command in the main module, and returns the command's output.
func (e *evaluation) inModule(long bool, args ...string) string {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = "../..", os.Environ()
	if long {
		cmd.Env = append(cmd.Env, "YUZHI_LONG=1")
	}
	out, err := cmd.CombinedOutput()
	testkit.Must(e, err == nil, "go %v: %v\n%s", args, err, out)
	return string(out)
}

func script(e *evaluation) {
	fmt.Printf(`## Server time of the scripts

Server time by INFO commandstats. A lease call covers about a hundred decisions; a draw or a call of
redis_rate covers one.

`)
	out := e.inModule(false, "test", "-run", "^$", "-bench", "ScriptServerTime", "-benchtime",
		short(e, "40000x", "500x"), "./redisbucket")
	var rows [][]string
	for _, m := range regexp.MustCompile(`([\d.]+) (usec/call|redis_rate-usec/call|ratio|draw-ratio)\b`).
		FindAllStringSubmatch(out, -1) {
		rows = append(rows, []string{map[string]string{
			"usec/call": "lease call, us", "redis_rate-usec/call": "call of redis_rate, us",
			"ratio": "lease call / call of redis_rate", "draw-ratio": "draw / call of redis_rate",
		}[m[2]], m[1]})
	}
	e.table([]string{"script", "figure"}, rows)
}

func rivals(e *evaluation) {
	fmt.Printf(`## Algorithms in the simulator

16 processes share 1,000/s with a burst of 200. Their clocks differ by up to 100 ms. The algorithms include
settling afterwards and a split of the rate.

`)
	out := e.inModule(!e.quick, "test", "./sim", "-count", "1", "-v", "-run", "RivalsOnFourLoads")
	logged := regexp.MustCompile(`(?m)^.*rivals_test\.go:\d+: (\|.*)$`)
	for _, row := range logged.FindAllStringSubmatch(out, -1) {
		fmt.Printf("%s\n", row[1])
	}
	fmt.Printf("\n")
}
