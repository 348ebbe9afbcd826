package violation_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
	"github.com/yuzhi-go/yuzhi/internal/violation"
	"github.com/yuzhi-go/yuzhi/lease"
	"github.com/yuzhi-go/yuzhi/redisbucket"
	"github.com/yuzhi-go/yuzhi/sim"
)

// Each line is path, value and the wanted one of a Violation. A path has the words of the reader: fields in Go,
// names in a file.
func TestEveryValidateReportsViolationsWithPathValueAndWant(t *testing.T) {
	negative := lease.Limit{Tokens: -1, Per: time.Second}
	limits := []lease.Limit{negative}
	_, ofStore := redisbucket.New(redis.NewClient(&redis.Options{}), redisbucket.Config{Prefix: "{"})
	_, ofRules := rules.New(rules.Table{Version: -1, Rules: map[string]rules.Rule{
		"user": {Key: []string{"all"}, Limits: limits}}}, rules.Config{})
	for _, c := range []struct {
		err   error
		wraps []error
		want  string
	}{
		{negative.Validate(), []error{lease.ErrInvalidLimit}, "Tokens|-1|must be at least 1\n"},
		{lease.Policy{Weight: -1, TTL: time.Second, Target: time.Second}.Validate(),
			[]error{lease.ErrInvalidPolicy}, "TTL|1s|must be at least 2s, two targets\n" +
				"Weight|-1|must be 1 to 1048576\n"},
		{lease.Config{Limits: limits, TTL: time.Second, Target: 1}.Validate(),
			[]error{lease.ErrInvalidConfig, lease.ErrInvalidLimit}, "Limits[0].Tokens|-1|must be at least 1\n" +
				"Target|1ns|must be 1µs to 1h0m0s\n" +
				"Target|1ns|must be whole microseconds, the resolution of the server's clock\n"},
		{(&lease.Request{Holder: "h"}).Validate(), []error{lease.ErrInvalidRequest},
			"Seq|0|must be 1 to 4503599627370495\n"},
		{hybrid.Config{Limits: limits, Policy: hybrid.Policy{Headroom: 1}, KeysMax: -1}.Validate(),
			[]error{hybrid.ErrInvalidConfig, lease.ErrInvalidPolicy, lease.ErrInvalidLimit},
			"Policy.Headroom|1|must be 0 to below 1\nLimits[0].Tokens|-1|must be at least 1\n" +
				"KeysMax|-1|must be at least 0\n"},
		{ofStore, []error{redisbucket.ErrInvalidConfig}, "Prefix|{|must not contain braces\n"},
		{ofRules, []error{rules.ErrInvalid, lease.ErrInvalidLimit}, "Config.Store|<nil>|is nil\n" +
			"version|-1|must be 0 to 4503599627370495\nrules.user.limits[0].tokens|-1|must be at least 1\n"},
		{sim.Scenario{Limits: limits, Policy: lease.Policy{Weight: -1}}.Validate(),
			[]error{sim.ErrInvalidScenario, lease.ErrInvalidLimit, lease.ErrInvalidPolicy},
			"limits[0].tokens|-1|must be at least 1\npolicy.weight|-1|must be 1 to 1048576\n"},
	} {
		got := ""
		for _, v := range violation.All(c.err) {
			got += fmt.Sprintf("%s|%v|%s\n", v.Path, v.Value, v.Want)
		}
		testkit.Check(t, got == c.want, "%v:\n%swant\n%s", c.err, got, c.want)
		var first *lease.Violation
		testkit.Check(t, errors.As(fmt.Errorf("wrapped: %w", c.err), &first), "%v is no Violation", c.err)
		for _, sentinel := range c.wraps {
			testkit.Check(t, errors.Is(c.err, sentinel), "%v does not wrap %v", c.err, sentinel)
		}
	}
}
