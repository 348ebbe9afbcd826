package main

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// composition holds the keys of the compose format that compose.yaml uses. With a strict decoder a
// misspelt key is an error.
type composition struct {
	Name     string
	API      container `yaml:"x-api"`
	Services map[string]container
	Volumes  map[string]any
	Networks map[string]any
}

type container struct {
	Image       string
	Build       struct{ Context, Dockerfile string }
	Command     []string
	Entrypoint  []string
	Environment map[string]string
	Volumes     []string
	Ports       []string
	DependsOn   any `yaml:"depends_on"`
	Healthcheck struct {
		Test     []string
		Interval string
	}
	StopGracePeriod string `yaml:"stop_grace_period"`
	Restart         string
	Profiles        []string
	Networks        map[string]struct {
		Address string `yaml:"ipv4_address"`
	}
}

// strictly reads a YAML file, all of whose fields must exist in into.
func strictly(t *testing.T, file string, into any) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(read(t, file))))
	decoder.KnownFields(true)
	testkit.NoErr(t, decoder.Decode(into))
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.NoErr(t, err)
	return string(text)
}

// onHost returns the host's path of a path in the container, by its mounts.
func (c container) onHost(path string) string {
	for _, v := range c.Volumes {
		parts := strings.Split(v, ":")
		if rest, ok := strings.CutPrefix(path, parts[1]); ok && strings.HasPrefix(parts[0], "./") {
			return filepath.Join(parts[0], rest)
		}
	}
	return "not mounted: " + path
}

// TestCompositionHoldsTogether: every file that compose.yaml names is there, nothing listens beyond
// the machine, and services are where others look.
func TestCompositionHoldsTogether(t *testing.T) {
	var c composition
	strictly(t, "compose.yaml", &c)

	// The API's flags are read by the API itself, and Prometheus scrapes every replica.
	testkit.NoErr(t, flag.CommandLine.Parse(c.API.Command))
	redisURL := flag.Lookup("redis").Value.String()
	testkit.Check(t, redisURL == "redis://redis:6379/0", "the API looks for Redis at %s", redisURL)
	ready := "http://127.0.0.1" + *admin + "/readyz"
	testkit.Check(t, slices.Contains(c.API.Healthcheck.Test, ready), "the health check is not of %s", ready)
	var targets []struct{ Targets []string }
	strictly(t, "prometheus/targets.yml", &targets)
	var replicas []string
	for name, s := range c.Services {
		for _, p := range s.Ports {
			testkit.Check(t, strings.HasPrefix(p, "127.0.0.1:"), "%s publishes %s beyond this machine", name, p)
		}
		if s.Image == c.API.Image {
			replicas = append(replicas, name+*admin)
		}
	}
	slices.Sort(replicas)
	testkit.Check(t, len(replicas) == 2 && slices.Equal(replicas, targets[0].Targets),
		"Prometheus scrapes %v of %v", targets, replicas)

	redis, prometheus, grafana := c.Services["redis"], c.Services["prometheus"], c.Services["grafana"]
	_, configured, _ := strings.Cut(prometheus.Command[0], "--config.file=")
	for _, file := range []string{
		filepath.Join(c.API.Build.Context, c.API.Build.Dockerfile), c.API.onHost(*limits),
		c.Services["load"].onHost(c.Services["load"].Entrypoint[0]), redis.onHost(redis.Command[1]),
		prometheus.onHost(configured),
		grafana.onHost(grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]),
		grafana.onHost("/etc/grafana/provisioning/datasources/prometheus.yml"),
	} {
		_, err := os.Stat(file)
		testkit.NoErr(t, err)
	}

	// The load plays the load balancer: the API trusts the client addresses from it, and from this machine.
	load := netip.MustParseAddr(c.Services["load"].Networks["default"].Address)
	table, err := rules.Parse("rules.yaml", []byte(read(t, c.API.onHost(*limits))))
	testkit.NoErr(t, err)
	testkit.Check(t, len(table.Trusted) == 2 && table.Trusted[0] == netip.PrefixFrom(load, 32) &&
		table.Trusted[1].Addr().IsLoopback(), "the API trusts %v, and the load is at %s", table.Trusted, load)
}
