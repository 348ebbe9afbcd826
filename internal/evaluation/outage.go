package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
)

func outage(e *evaluation) {
	const rate = 1000
	part := short(e, 3*time.Second, 300*time.Millisecond)
	fmt.Printf(`## An outage

One process sends 2,000 requests/s under a limit of 1,000/s with a burst of 1,000. Redis hangs (SIGSTOP)
from %v to %v of %v. Admitted counts the decisions that end before Redis resumes; the limit refills %v
tokens in that time. Recovery is the first tenth of a second after the resumption in which no decision
fails or takes longer than 50 ms, if the limiter admits at least half of the limit from then on. Clients
have default options, unless the row names others.

`, part, 2*part, 3*part, rate*part.Seconds())
	type contender struct {
		peer
		o redis.Options
	}
	contenders := []contender{
		{peer{name: ownShare, open: yuzhi(hybrid.Policy{})}, redis.Options{}},
		{peer{name: ownDeny, open: yuzhi(hybrid.Policy{Fallback: hybrid.FallbackDeny})}, redis.Options{}},
	}
	for _, p := range fleetwide[1:] {
		contenders = append(contenders, contender{peer: p})
		if p.name == reference {
			p.name += ", ReadTimeout 100 ms, no retries"
			o := redis.Options{ReadTimeout: 100 * time.Millisecond, MaxRetries: -1}
			contenders = append(contenders, contender{p, o})
		}
	}
	var rows [][]string
	for _, c := range contenders {
		s := e.site()
		ask := c.open(s, perSecond(rate, rate), c.o)
		var hangs, continues time.Time
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(part)
			hangs = time.Now()
			s.server.Hang(e)
			time.Sleep(part)
			continues = time.Now()
			s.server.Resume(e)
		}()
		o := s.open(2*rate, 3*part, ask, one)
		<-done
		rows = append(rows, o.outageRow(c.name, hangs.Sub(o.begun), continues.Sub(o.begun), rate))
		s.close()
	}
	e.table([]string{"limiter", "admitted meanwhile", "errors", "longest decision", "recovered after"}, rows)
}

func (o *outcome) outageRow(name string, hangs, continues time.Duration, rate float64) []string {
	const bin, quick = 100 * time.Millisecond, 50 * time.Millisecond
	admitted, failed, longest := 0, 0, time.Duration(0)
	type slice struct {
		asked, admitted int
		bad             bool
	}
	var after []slice // decisions, grouped by the time since the server resumed
	for _, x := range o.all {
		longest = max(longest, x.took)
		if x.failed {
			failed++
		}
		if x.admitted && x.issued >= hangs && x.issued+x.took < continues {
			admitted++
		}
		if x.issued >= continues {
			i := int((x.issued - continues) / bin)
			for len(after) <= i {
				after = append(after, slice{})
			}
			after[i].asked++
			after[i].bad = after[i].bad || x.failed || x.took > quick
			if x.admitted {
				after[i].admitted++
			}
		}
	}
	recovered := "not in this run"
	served, bins := 0, 0
	for i, x := range slices.Backward(after) {
		served, bins = served+x.admitted, bins+1
		if x.asked > 0 && !x.bad && float64(served) >= rate/2*bin.Seconds()*float64(bins) {
			recovered = (time.Duration(i) * bin).String()
		}
	}
	slowest := longest.Round(time.Millisecond).String()
	return []string{name, fmt.Sprint(admitted), fmt.Sprint(failed), slowest, recovered}
}
