// Package hybridotel reports metrics and spans of package hybrid to OpenTelemetry. Package hybridotel needs
// only the OpenTelemetry API; the program chooses SDK and exporter.
//
//	telemetry, err := hybridotel.New(hybridotel.Config{}) // the global providers
//	limiter, err := hybrid.New(telemetry.Store(store), hybrid.Config{...})
//	defer telemetry.Register(limiter)()
//	...
//	err = telemetry.Wait(ctx, limiter.Key("user-17"))
//
// Register, Store and Wait work without each other. Register reports metrics from hybrid.Stats. Store reports
// round trips and their spans. Wait reports the durations and outcomes of waits. None of them
// slows a Key.Allow that makes no lease call: Stats is read only when metrics are collected.
//
// # Metrics
//
// All metrics have Config.Attributes. Metrics of Register and Wait also have the attribute yuzhi.limiter, the
// hybrid.Config.Name, unless the name is empty. No metric or span has a key of a request. Prometheus writes
// "_" for ".", "_seconds" for s, "_per_second" for {token}/s, and "_total" after a counter.
//
// Metrics of Register, which reads hybrid.Limiter.Stats once for each collection:
//
//	yuzhi.tokens.requested           counter       {token}      yuzhi.result=admitted, denied, shadowed (admitted
//	                                 by Policy.Shadow alone); yuzhi.source=lease, fallback (the store did not answer)
//	yuzhi.tokens.granted_to_waiters  counter       {token}      by a lease call for which the request waited
//	yuzhi.tokens.table_full          counter       {token}      denied: all of Config.KeysMax keys were in use
//	yuzhi.tokens.leased              counter       {token}      granted by the store
//	yuzhi.tokens.returned            counter       {token}      given back to the store unused
//	yuzhi.tokens.lost                counter       {token}      yuzhi.reason=void, expired: hybrid.LossReason
//	yuzhi.tokens.refunded            counter       {token}      not used: Refund, or Settle of less
//	yuzhi.tokens.charged             counter       {token}      used beyond the estimate: Settle of more
//	yuzhi.tokens.held                updowncounter {token}      leased and not used yet
//	yuzhi.requests.waiting           updowncounter {request}    for a lease call or for tokens
//	yuzhi.requests.refused           counter       {request}    yuzhi.reason=invalid, misconfigured
//	yuzhi.keys                       updowncounter {key}        yuzhi.state=resting, active, degraded
//	yuzhi.nodes.away                 gauge         {node}       yuzhi.node; 1 while the node does not answer, else 0
//	yuzhi.conflicts                  counter       {conflict}   the bucket has other limits under one version
//	yuzhi.lease.calls                counter       {call}       each for one key
//	yuzhi.lease.failures             counter       {call}       calls that failed or were late
//	yuzhi.lease.round_trips          counter       {round_trip} exchanges with the store, of any number of calls
//	yuzhi.lease.rtt                  gauge         s            99th percentile of the slowest node
//	yuzhi.limit.rate                 gauge         {token}/s    yuzhi.limit, such as 100/s burst 200
//	yuzhi.limit.burst                gauge         {token}      yuzhi.limit
//	yuzhi.limit.keys                 updowncounter {key}        yuzhi.limit; keys in use with this limit
//	yuzhi.limit.denied               counter       {token}      yuzhi.limit, yuzhi.result=denied, shadowed
//
// Metrics of Store, which may serve several Limiters:
//
//	yuzhi.store.round_trip.duration  histogram     s            yuzhi.operation=lease, inspect, set, ...;
//	                                 yuzhi.node of a lease; error.type
//	yuzhi.store.calls                counter       {call}       yuzhi.outcome=granted, empty, reported (no
//	                                 tokens were wanted), failed
//
// Metrics of Wait:
//
//	yuzhi.wait.duration              histogram     s            yuzhi.outcome=admitted, cancelled, closed,
//	                                 would_exceed_deadline, deadline_exceeded, exceeds_burst, unavailable,
//	                                 misconfigured, invalid
//
// # Spans
//
//	yuzhi.lease     client    one exchange of lease calls with the store, for many requests: a trace of its
//	                          own. yuzhi.keys, yuzhi.tokens (granted), and the number of calls by outcome:
//	                          yuzhi.calls.granted, empty, reported, failed
//	yuzhi.inspect, yuzhi.set, ...
//	                client    Peek, SetLimits and similar calls; a child of the caller's span
//	yuzhi.wait      internal  one Wait; a child of the caller's span. yuzhi.limiter, yuzhi.tokens,
//	                          yuzhi.outcome
//
// A yuzhi.lease span has links to the spans of the requests that wait for its keys, at most 128, and these
// spans have links back. A request's span is yuzhi.wait or, without Wait, the caller's own span. The
// attributes db.system.name (for a redisbucket.Store), db.operation.batch.size and error.type follow
// OpenTelemetry's conventions for databases. Spans of a memory.Store are internal.
package hybridotel
