package hybridotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/internal/keyhash"
	"github.com/yuzhi-go/yuzhi/lease"
)

// texts returns all texts in metrics and spans.
func (t *world) texts() (all []string) {
	for _, m := range t.collect() {
		all = append(all, fmt.Sprintf("%+v", m))
	}
	for name := range t.metrics() {
		all = append(all, name)
	}
	for _, s := range tracetest.SpanStubsFromReadOnlySpans(t.spans.Ended()) {
		all = append(all, fmt.Sprintf("%+v", s))
	}
	return all
}

// No part of a key is in any metric or span, whatever the key is and whatever happens to it.
func TestNoKeyIsReported(t *testing.T) {
	const secret = "s3cret"
	keys := []string{
		secret, secret + `" quoted\`, secret + "\nline", secret + "{label=\"x\"}", "%s" + secret, "@api:" + secret,
		"\xff\xfe" + secret, strings.Repeat(secret, 1000), keyhash.Of(secret), strings.ToUpper(secret),
		"admitted", secret + "\x00",
	}
	bubble(t, func(t *world) {
		c := config(hybrid.PerSecond(20))
		c.LimitsFor = func(_ context.Context, key string) ([]hybrid.Limit, error) {
			if key == "%s"+secret {
				return []hybrid.Limit{{Tokens: -1}}, nil
			}
			return nil, nil
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
		first, last := all[0], all[len(all)-1]
		must(t, strings.Contains(first, "unavailable") && strings.Contains(last, "yuzhi."), "no attributes")
		hashes := []string{secret, keyhash.Of(keys[7])[3:20], keyhash.Of(secret)[3:20], "another"}
		for _, text := range all {
			for _, key := range hashes {
				check(t, !strings.Contains(strings.ToLower(text), key), "%q is in %q", key, text)
			}
		}
	})
}
