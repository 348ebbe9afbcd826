package hybridotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// texts returns all texts in metrics and spans.
func (t *world) texts() (all []string) {
	for _, m := range t.collect() {
		all = append(all, m.Name, m.Description, m.Unit)
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				all = append(all, fmt.Sprintf("%v %+v", p.Attributes.ToSlice(), p.Exemplars))
			}
		default:
			all = append(all, fmt.Sprintf("%+v", data))
		}
	}
	for name := range t.metrics() {
		all = append(all, name)
	}
	for _, s := range t.spans.Ended() {
		all = append(all, textOf(s))
	}
	return all
}

func textOf(s sdk.ReadOnlySpan) string {
	text := fmt.Sprint(s.Name(), s.Status(), s.Resource(), s.InstrumentationScope())
	for _, a := range s.Attributes() {
		text += fmt.Sprint(" ", a.Key, "=", a.Value.String())
	}
	for _, l := range s.Links() {
		text += fmt.Sprint(l.Attributes)
	}
	for _, e := range s.Events() {
		text += fmt.Sprint(e.Name, e.Attributes)
	}
	return text
}

// No part of a key is in any metric or span, whatever the key is and whatever happens to it.
func TestNoKeyIsReported(t *testing.T) {
	const secret = "s3cret"
	keys := []string{
		secret, secret + `" quoted\`, secret + "\nline", secret + "{label=\"x\"}", "%s" + secret, "@api:" + secret,
		"\xff\xfe" + secret, strings.Repeat(secret, 1000), lease.HashKey(secret), strings.ToUpper(secret),
		"admitted", secret + "\x00",
	}
	bubble(t, func(t *world) {
		c := config(hybrid.PerSecond(20))
		c.LimitsFor = func(key string) []hybrid.Limit {
			if key == "%s"+secret {
				return []hybrid.Limit{{Tokens: -1}}
			}
			return nil
		}
		l := t.start(c)
		use := func() {
			for _, key := range keys {
				for range 30 {
					l.Allow(key)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_ = t.WaitN(ctx, l.Key(key), 5)
				_ = t.Wait(ctx, l.Join(l.Key(key), l.Key("another")))
				_ = t.WaitN(ctx, l.Key(key), 50)
				_, _ = l.Peek(ctx, key)
				_ = l.SetLimits(ctx, key, hybrid.PerSecond(30))
				_ = l.Reset(ctx, key)
				cancel()
			}
		}
		use()
		secretly := errors.New(secret)
		for _, err := range []error{lease.ErrUnavailable, lease.ErrPermanent, secretly, context.Canceled} {
			t.store.fails(err) // whose errors name the key
			time.Sleep(2 * ttl)
			use()
		}
		all := t.texts()
		must(t, len(all) > 500, "%d texts", len(all))
		hashes := []string{secret, lease.HashKey(keys[7])[3:20], lease.HashKey(secret)[3:20], "another"}
		for _, text := range all {
			for _, key := range hashes {
				check(t, !strings.Contains(strings.ToLower(text), key), "%q is in %q", key, text)
			}
		}
	})
}
