// Package planner finds the lease policy that asks Redis the least and still meets what a user demands.
//
// A lease that is longer makes fewer calls, but accuracy is not monotone in its length: tokens strand in longer
// leases, while shorter ones deny during round trips and wake the fair shares up to different moments. So nothing here
// is a bisection. Plan screens a grid that fills the space of policies with few and short replications; keeps the
// better half, again and again, with more and longer ones; looks around the survivors; and confirms the winner at
// full length, on seeds that none of this has seen (a winner of many is lucky on the seeds that it won on), and under
// stress: clocks twice as wrong, an outage of Redis, and half as many processes again.
//
// A policy meets a target if the pessimistic end of the figure's confidence interval does.
//
// What a Plan says depends on the question and its seed alone: the effort is bounded in simulated requests, never in
// seconds, and everything that runs side by side runs on its own.
package planner
