// Package hybridotel reports package hybrid to OpenTelemetry: metrics for dashboards and alerts, and
// spans that connect each waiting request with its lease call. It needs the OpenTelemetry API alone; the
// program chooses SDK and exporter.
//
//	telemetry, err := hybridotel.New(hybridotel.Config{}) // the global providers
//	limiter, err := hybrid.New(telemetry.Store(store), hybrid.Config{...})
//	defer telemetry.Register(limiter)()
//	...
//	err = telemetry.Wait(ctx, limiter.Key("user-17"))
//
// Each of the three works without the others: Register for metrics from hybrid.Stats, Store for round
// trips and their spans, Wait for the durations and outcomes of waits. None of them costs Key.Allow
// anything: a reader asks for Stats when it collects, and a request counts nothing here.
//
// # Metrics
//
// All have Config.Attributes. Those of Register and Wait have the attribute yuzhi.limiter too, which is
// hybrid.Config.Name; a Limiter without a name has none. No metric or span has a key. A line ends with
// the name in Prometheus, and below it are the attributes. Counts are tokens unless the unit says
// otherwise; if each request asks for one token, they are requests.
//
// The structure follows the stable convention aspnetcore.rate_limiting: requests by result, requests
// that wait now, and durations.
//
// Of Register, one hybrid.Limiter.Stats for each collection:
//
//	yuzhi.tokens.requested           counter       {token}      yuzhi_tokens_requested_total
//	    yuzhi.result=admitted with yuzhi.source=lease or fallback
//	    yuzhi.result=denied
//	    yuzhi.result=shadowed: admitted by Policy.Shadow alone
//	yuzhi.tokens.awaited             counter       {token}      yuzhi_tokens_awaited_total
//	    admitted by a lease call for which the request waited
//	yuzhi.tokens.crowded             counter       {token}      yuzhi_tokens_crowded_total
//	    of those denied or shadowed: all of Config.KeysMax keys were in use
//	yuzhi.tokens.leased              counter       {token}      yuzhi_tokens_leased_total
//	    granted by the store
//	yuzhi.tokens.returned            counter       {token}      yuzhi_tokens_returned_total
//	    given back to it unused
//	yuzhi.tokens.lost                counter       {token}      yuzhi_tokens_lost_total
//	    yuzhi.reason=void, expired: see hybrid.LossReason
//	yuzhi.tokens.refunded            counter       {token}      yuzhi_tokens_refunded_total
//	    admitted, and then not used: Refund, or Settle of less
//	yuzhi.tokens.charged             counter       {token}      yuzhi_tokens_charged_total
//	    used beyond what was reserved: Settle of more
//	yuzhi.tokens.held                updowncounter {token}      yuzhi_tokens_held
//	    leased and not used yet
//	yuzhi.requests.waiting           updowncounter {request}    yuzhi_requests_waiting
//	    for a lease call, or in line
//	yuzhi.requests.refused           counter       {request}    yuzhi_requests_refused_total
//	    yuzhi.reason=invalid, misconfigured
//	yuzhi.keys                       updowncounter {key}        yuzhi_keys
//	    yuzhi.state=resting, active, degraded: its last call failed
//	yuzhi.conflicts                  counter       {conflict}   yuzhi_conflicts_total
//	    keys whose bucket has other limits under the same version
//	yuzhi.lease.calls                counter       {call}       yuzhi_lease_calls_total
//	    each for one key
//	yuzhi.lease.failures             counter       {call}       yuzhi_lease_failures_total
//	    of these: brought no grant, or not in time
//	yuzhi.lease.round_trips          counter       {round_trip} yuzhi_lease_round_trips_total
//	    exchanges with the store, of any number of calls
//	yuzhi.lease.rtt                  gauge         s            yuzhi_lease_rtt_seconds
//	    99th percentile of the latest ones, of the slowest node
//	yuzhi.limit.rate                 gauge         {token}/s    yuzhi_limit_rate_per_second
//	    yuzhi.limit, such as 100/s burst 200; of limits in force for a key in use
//	yuzhi.limit.burst                gauge         {token}      yuzhi_limit_burst
//	    yuzhi.limit
//	yuzhi.limit.keys                 updowncounter {key}        yuzhi_limit_keys
//	    yuzhi.limit; keys in use for which it is in force
//	yuzhi.limit.denied               counter       {token}      yuzhi_limit_denied_total
//	    yuzhi.limit, yuzhi.result=denied, shadowed; see hybrid.LimitStats
//
// Of Store, which may serve several Limiters:
//
//	yuzhi.store.round_trip.duration  histogram     s            yuzhi_store_round_trip_duration_seconds
//	    yuzhi.operation=lease, inspect, set, ...; yuzhi.node of a lease; error.type
//	yuzhi.store.calls                counter       {call}       yuzhi_store_calls_total
//	    yuzhi.outcome=granted, empty, reported (none was wanted), failed
//
// Of Wait:
//
//	yuzhi.wait.duration              histogram     s            yuzhi_wait_duration_seconds
//	    yuzhi.outcome=admitted, would_exceed_deadline, deadline_exceeded, cancelled,
//	    exceeds_burst, unavailable, misconfigured, invalid, closed
//
// # Spans
//
//	yuzhi.lease     client    one exchange of lease calls with the store; a trace of its own, as it
//	                          serves many requests. yuzhi.keys, yuzhi.tokens granted, and calls by
//	                          outcome as yuzhi.calls.granted, empty, reported, failed
//	yuzhi.inspect, yuzhi.set and the like
//	                client    Peek, SetLimits and their like; a child of the caller's span
//	yuzhi.wait      internal  one Wait; a child of the caller's span. yuzhi.limiter, yuzhi.tokens,
//	                          yuzhi.outcome
//
// A yuzhi.lease and the span of each request that waits for one of its keys meanwhile are linked with
// each other: the yuzhi.wait, or the caller's own span if it waits by another verb, at most 128 of them.
// Names follow the conventions for databases: db.system.name for a Store that is known to be Redis,
// db.operation.batch.size, error.type. Spans of a MemoryStore are internal.
package hybridotel
