package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/hybrid/hybridotel"
	"github.com/yuzhi-go/yuzhi/lease"
)

// service is the API with its limits.
type service struct {
	rules     *rules.Rules    // limits of users and addresses, from config/rules.yaml
	reports   *hybrid.Limiter // limiter of the costly reports
	telemetry *hybridotel.Telemetry
	registry  *prometheus.Registry
	ready     atomic.Bool
}

// newService returns the API with limits in store. newService makes no call to Redis, so the service starts
// during an outage of Redis.
func newService(store lease.Store, file string, callTimeout time.Duration) (*service, error) {
	s := &service{registry: prometheus.NewRegistry()}
	reader, err := exporter.New(exporter.WithRegisterer(s.registry), exporter.WithoutScopeInfo(),
		exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return nil, err
	}
	// With a TracerProvider, the telemetry would also report spans.
	s.telemetry, err = hybridotel.New(hybridotel.Config{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
	})
	if err != nil {
		return nil, err
	}
	store = s.telemetry.Store(store)
	s.reports, err = hybrid.New(store, hybrid.Config{
		Name: "reports", Limits: []hybrid.Limit{hybrid.PerSecond(5)}, CallTimeout: callTimeout,
	})
	if err != nil {
		return nil, err
	}
	s.telemetry.Register(s.reports)
	s.rules, err = rules.Open(file, rules.Config{
		Store: store, Base: hybrid.Config{CallTimeout: callTimeout},
		Interval: 2 * time.Second, OnLimiter: s.telemetry.Register,
	})
	if err != nil {
		return nil, err
	}
	s.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "api_rules_refused", Help: "1 while the rules file is invalid, otherwise 0.",
	}, func() float64 {
		if s.rules.Status().Err != nil {
			return 1
		}
		return 0
	}))
	return s, nil
}

// warmUp makes the service ready as soon as Redis answers, because a process without a connection may deny
// its first requests. If Redis does not answer within ten seconds, the service becomes ready without Redis. A
// later outage does not make the service unready, because the fallback decides.
func (s *service) warmUp(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for within.Err() == nil && s.reports.Ping(within) != nil {
		time.Sleep(500 * time.Millisecond)
	}
	s.ready.Store(ctx.Err() == nil)
}

func (s *service) shutdown(ctx context.Context) error {
	return errors.Join(s.rules.Shutdown(ctx), s.reports.Shutdown(ctx))
}

// admin serves operators and the orchestrator without limits.
func (s *service) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "starting or stopping", http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	return mux
}

// api serves users within the limits of the rules file.
func (s *service) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"id": r.PathValue("id")})
	})
	mux.HandleFunc("POST /items", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})
	mux.HandleFunc("POST /reports", s.report)
	return s.rules.Handler(mux)
}

// report makes a report. Reports are costly, so all replicas together make five a second. A request waits up
// to two seconds for its token. If the token would come later, the request is denied at once.
func (s *service) report(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if s.telemetry.Wait(ctx, s.reports.Key("all")) != nil {
		w.Header().Set("Retry-After", "2")
		http.Error(w, "too many reports are waiting", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
}
