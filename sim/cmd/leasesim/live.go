package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yuzhi-go/yuzhi/sim"
	"github.com/yuzhi-go/yuzhi/sim/cmd/leasesim/internal/live"
)

func liveCommand() *cobra.Command {
	var o live.Options
	var out string
	c := &cobra.Command{
		Use:   "live",
		Short: "Run a fleet of real processes against one Redis and audit every admission",
		Long: `live starts real processes that share one limit through one Redis, offers them a multiple of the limit, and
audits every admission of every process: in no window may the fleet admit more than

    burst + overcommit + rate x window

Each admission is stamped before and after the call with a clock that all processes share, in memory that
survives a killed process. A window counts only what certainly lies inside it, over all pairs of stamps, so
there is no tolerance and no false alarm. Without --redis an embedded Redis is started.

--redis is host:port, or a URL with user, password and database, as go-redis reads it: rediss:// for TLS,
redis+cluster:// for a cluster (further nodes as ?addr=host:port&addr=...), redis+sentinel:// for the Sentinels
of ?master_name=...; with TLS rediss+cluster:// and rediss+sentinel://. The user needs what docs/operations.md lists.

A process that is stopped for longer than its lease's TTL (--stop-after) may spend what it held when it goes
on, unless --strict has it read the clock for every decision.

Exit status: 0 the bound holds, 3 it was exceeded, 2 bad usage, 130 interrupted, 1 anything else.`,
		Example: `  leasesim live
  leasesim live --redis localhost:6379 --rate 50000 --burst 10000 --duration 10s
  leasesim live --redis 'rediss://yuzhi:secret@redis.internal:6380/2'
  leasesim live --redis 'redis+cluster://10.0.0.1:6379?addr=10.0.0.2:6379'
  leasesim live --redis 'redis+sentinel://:secret@10.0.0.1:26379?addr=10.0.0.2:26379&master_name=buckets'
  leasesim live --shape adversary --processes 8 --out json
  leasesim live --kill-after 2s --stop-after 1s --strict`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if out != "table" && out != "json" {
				return fmt.Errorf("%w: --out is %q, must be table or json", live.ErrUsage, out)
			}
			progress, clear := statusLine(c.ErrOrStderr())
			report, err := live.Run(c.Context(), o, progress)
			clear()
			if err != nil && c.Context().Err() != nil {
				return fmt.Errorf("leasesim: %w (%w)", sim.ErrInterrupted, err)
			}
			if err != nil {
				return err
			}
			write := report.WriteTable
			if out == "json" {
				write = report.WriteJSON
			}
			if err := write(c.OutOrStdout()); err != nil {
				return fmt.Errorf("leasesim: %w", err)
			}
			if report.BoundExceededBy > 0 {
				return fmt.Errorf("%w by %d", errExceeded, report.BoundExceededBy)
			}
			return nil
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&o.Redis, "redis", "", "host:port or URL of a real Redis; without it an embedded one is started")
	f.IntVar(&o.Processes, "processes", 4, "number of processes")
	f.Int64Var(&o.Rate, "rate", 20000, "tokens per second")
	f.Int64Var(&o.Burst, "burst", 5000, "tokens that the full bucket holds")
	f.Int64Var(&o.Overcommit, "overcommit", 0, "tokens that level and leases together may reach above the burst")
	f.Float64Var(&o.Offered, "offered", 2, "requests offered by all processes together, as a multiple of the rate")
	f.StringVar(&o.Shape, "shape", live.ShapeSteady, "shape of the load: "+strings.Join(live.Shapes, ", ")+" (adversary drains its lease just before every report; it ignores --offered)")
	f.DurationVar(&o.Within, "within", 0, "spread each burst over this long (0: as fast as two workers of each process can)")
	f.DurationVar(&o.Duration, "duration", 5*time.Second, "how long to offer load")
	f.DurationVar(&o.Target, "target", 0, "how long one lease should last (0: 100ms, less for a small burst)")
	f.DurationVar(&o.TTL, "ttl", 0, "how long a lease is valid without renewal (0: 4 targets, at least 200ms)")
	f.BoolVar(&o.Strict, "strict", false, "read the clock for every decision (Policy.StrictExpiry)")
	f.StringVar(&o.Key, "key", live.NewKey(), "the limiter's key; a new one by default")
	f.Lookup("key").DefValue = "" // the help says it in words
	f.DurationVar(&o.KillAfter, "kill-after", 0, "kill -9 one process after this time (0: none)")
	f.DurationVar(&o.StopAfter, "stop-after", 0, "stop one process after this time, for twice the TTL (0: none)")
	f.StringVar(&out, "out", "table", "table or json")
	f.Int64Var(&o.Forge, "forge", 0, "invent this many admissions at one instant, to see the audit find them")
	_ = f.MarkHidden("forge")
	return c
}
