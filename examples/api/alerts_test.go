package main

import (
	"os/exec"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestEveryAlertIsTested: for each alert there is a case in which it fires, with all labels and
// annotations, and one in which it does not fire yet. promtool, which comes with Prometheus, then
// runs the cases.
func TestEveryAlertIsTested(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	var cases struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	testkit.NoErr(t, yaml.Unmarshal([]byte(read(t, "prometheus/alerts.yml")), &rules))
	testkit.NoErr(t, yaml.Unmarshal([]byte(read(t, "prometheus/alerts_test.yml")), &cases))
	fires, waits := map[string]bool{}, map[string]bool{}
	for _, one := range cases.Tests {
		quiet := map[string]bool{} // so far, in the same course of events
		for _, c := range one.AlertRuleTest {
			if len(c.ExpAlerts) == 0 {
				quiet[c.Alertname] = true
				continue
			}
			fires[c.Alertname] = true
			waits[c.Alertname] = waits[c.Alertname] || quiet[c.Alertname]
		}
	}
	for _, rule := range rules.Groups[0].Rules {
		testkit.Check(t, fires[rule.Alert], "no test shows that %s fires", rule.Alert)
		testkit.Check(t, waits[rule.Alert], "no test shows that %s does not fire too early", rule.Alert)
		testkit.Check(t, len(rule.Annotations["description"]) > 100, "%s does not say what to do", rule.Alert)
	}

	for _, words := range [][]string{
		{"check", "config", "prometheus/prometheus.yml"}, // and the rules that it names
		{"test", "rules", "prometheus/alerts_test.yml"},
	} {
		promtool, err := exec.LookPath("promtool")
		if err != nil {
			t.Skip("there is no promtool; run installs it, and runs these cases too")
		}
		out, err := exec.Command(promtool, words...).CombinedOutput()
		testkit.Check(t, err == nil, "promtool %v: %v\n%s", words, err, out)
	}
}
