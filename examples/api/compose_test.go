package main

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
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
	Networks map[string]struct {
		IPAM struct{ Config []struct{ Subnet string } }
	}
}

type container struct {
	Image       string
	Build       struct{ Context, Dockerfile string }
	Command     []string
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

// flagsOf returns the flags among words, by name, with or without a value.
func flagsOf(words []string) map[string]string {
	flags := map[string]string{}
	for _, word := range words {
		if name, ok := strings.CutPrefix(word, "-"); ok {
			name, value, _ := strings.Cut(strings.TrimPrefix(name, "-"), "=")
			flags[name] = value
		}
	}
	return flags
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

func exists(t *testing.T, file, what string) {
	t.Helper()
	_, err := os.Stat(file)
	testkit.Check(t, err == nil, "%s: %v", what, err)
}

var pinned = regexp.MustCompile(`^[a-z./-]+:v?\d+\.\d+\.\d+(-[a-z0-9.]+)?$`)

// TestCompositionHoldsTogether: every file that compose.yaml mounts or names is there, images
// have exact versions, nothing listens beyond the machine, and services are where others look.
func TestCompositionHoldsTogether(t *testing.T) {
	var c composition
	strictly(t, "compose.yaml", &c)

	published := map[string]string{}
	for name, s := range c.Services {
		local := s.Image == c.API.Image
		testkit.Check(t, local || pinned.MatchString(s.Image), "%s: image %q has no exact version", name, s.Image)
		for _, v := range s.Volumes {
			source := strings.Split(v, ":")[0]
			if strings.HasPrefix(source, "./") {
				exists(t, source, name+" mounts")
				testkit.Check(t, strings.HasSuffix(v, ":ro"), "%s can write to %s", name, source)
			} else {
				_, declared := c.Volumes[source]
				testkit.Check(t, declared, "%s uses the volume %q that nobody declares", name, source)
			}
		}
		for _, p := range s.Ports {
			testkit.Check(t, strings.HasPrefix(p, "127.0.0.1:"), "%s publishes %s beyond this machine", name, p)
			host := strings.Split(p, ":")[1]
			testkit.Check(t, published[host] == "", "%s and %s both publish %s", name, published[host], host)
			published[host] = name
		}
	}

	exists(t, filepath.Join(c.API.Build.Context, c.API.Build.Dockerfile), "the Dockerfile")
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		testkit.Check(t, pinned.MatchString(from[1]), "Dockerfile: image %q has no exact version", from[1])
	}

	// The API's flags are read by the API itself.
	testkit.Must(t, c.API.Command[0] == "serve", "the API is started as %v", c.API.Command)
	o, err := parse(c.API.Command[1:])
	testkit.NoErr(t, err)
	exists(t, c.API.onHost(o.rules), "the rules")
	testkit.Check(t, o.redis == "redis://redis:6379/0", "the API looks for Redis at %s", o.redis)
	ready := "http://127.0.0.1" + o.admin + "/readyz"
	testkit.Check(t, slices.Contains(c.API.Healthcheck.Test, ready), "the health check is not of %s", ready)

	// Prometheus scrapes every replica, on its operators' port.
	var targets []struct{ Targets []string }
	strictly(t, "prometheus/targets.yml", &targets)
	var replicas, scraped []string
	for name, s := range c.Services {
		if s.Image == c.API.Image && s.Profiles == nil {
			replicas = append(replicas, name+o.admin)
			testkit.Check(t, slices.Equal(s.Command, c.API.Command), "%s is started otherwise than %v", name,
				c.API.Command)
			testkit.Check(t, len(s.Ports) == 1 && strings.HasSuffix(s.Ports[0], o.listen),
				"%s publishes %v and listens on %s", name, s.Ports, o.listen)
		}
	}
	for _, group := range targets {
		scraped = append(scraped, group.Targets...)
	}
	slices.Sort(replicas)
	testkit.Check(t, len(replicas) >= 2 && slices.Equal(replicas, scraped), "Prometheus scrapes %v of %v",
		scraped, replicas)

	// Each program's flags name its mounted configuration.
	prometheus, grafana := c.Services["prometheus"], c.Services["grafana"]
	exists(t, prometheus.onHost(flagsOf(prometheus.Command)["config.file"]), "Prometheus")
	exists(t, c.Services["redis"].onHost(c.Services["redis"].Command[1]), "Redis")
	exists(t, grafana.onHost(grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]),
		"Grafana's first page")
	exists(t, grafana.onHost("/etc/grafana/provisioning/datasources/prometheus.yml"), "the datasource")

	// The load plays the load balancer: the API trusts the client addresses from it alone.
	load := c.Services["load"].Networks["default"].Address
	text := read(t, c.API.onHost(o.rules))
	table, err := rules.Parse("rules.yaml", []byte(text))
	testkit.NoErr(t, err)
	trusted := []netip.Prefix{netip.MustParsePrefix(load + "/32"), netip.MustParsePrefix("127.0.0.1/32")}
	testkit.Check(t, slices.Equal(table.Trusted, trusted),
		"the API trusts %v, and the load is at %s, or in run on the same machine", table.Trusted, load)
	network, err := netip.ParsePrefix(c.Networks["default"].IPAM.Config[0].Subnet)
	testkit.NoErr(t, err)
	testkit.Check(t, network.Contains(netip.MustParseAddr(load)), "%s is not in %v", load, network)
	for _, url := range c.Services["load"].Command[2:] {
		host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), o.listen)
		testkit.Check(t, c.Services[host].Image == c.API.Image, "the load goes to %s", url)
	}
}

// TestGrafanaFindsWhatItShows: the datasource is the Prometheus of the composition, knows how often
// that scrapes, and the provider looks where the dashboard is mounted.
func TestGrafanaFindsWhatItShows(t *testing.T) {
	var c composition
	strictly(t, "compose.yaml", &c)
	var source struct {
		Datasources []struct {
			URL      string
			JSONData struct {
				TimeInterval string `yaml:"timeInterval"`
			} `yaml:"jsonData"`
		}
	}
	testkit.NoErr(t, yaml.Unmarshal([]byte(read(t, "grafana/provisioning/datasources/prometheus.yml")), &source))
	var scraper struct {
		Global struct {
			ScrapeInterval string `yaml:"scrape_interval"`
		}
		RuleFiles []string `yaml:"rule_files"`
	}
	testkit.NoErr(t, yaml.Unmarshal([]byte(read(t, "prometheus/prometheus.yml")), &scraper))
	for _, file := range scraper.RuleFiles {
		exists(t, filepath.Join("prometheus", file), "the rules of Prometheus")
	}
	only := source.Datasources[0]
	testkit.Check(t, only.URL == "http://prometheus:9090", "Grafana looks for Prometheus at %s", only.URL)
	testkit.Check(t, only.JSONData.TimeInterval == scraper.Global.ScrapeInterval,
		"Grafana believes that Prometheus scrapes every %s, which does every %s", only.JSONData.TimeInterval,
		scraper.Global.ScrapeInterval)

	var provider struct {
		Providers []struct{ Options struct{ Path string } }
	}
	testkit.NoErr(t, yaml.Unmarshal([]byte(read(t, "grafana/provisioning/dashboards/yuzhi.yml")), &provider))
	exists(t, filepath.Join(c.Services["grafana"].onHost(provider.Providers[0].Options.Path), "yuzhi.json"),
		"the dashboard")
}

// TestTheScriptStartsTheComposition: run gives the programs the files and the flags that
// compose.yaml gives them; only addresses and times are its own.
func TestTheScriptStartsTheComposition(t *testing.T) {
	var c composition
	strictly(t, "compose.yaml", &c)
	script := strings.ReplaceAll(read(t, "run"), "\\\n", " ")
	command := func(program string) map[string]string {
		found := regexp.MustCompile(`(?m)^ *start .*` + program + `.*$`).FindString(script)
		testkit.Must(t, found != "", "run does not start %s", program)
		return flagsOf(strings.Fields(found))
	}
	names := func(flags map[string]string) []string {
		var all []string
		for name := range flags {
			all = append(all, name)
		}
		slices.Sort(all)
		return all
	}
	for program, args := range map[string][]string{"api\" serve": c.API.Command,
		"api\" load": c.Services["load"].Command} {
		here, there := names(command(program)), names(flagsOf(args))
		here = slices.DeleteFunc(here, func(f string) bool { return f == "most" })
		testkit.Check(t, slices.Equal(here, there), "%s has the flags %v in run and %v in compose.yaml", program,
			here, there)
	}
	for _, file := range []string{"redis-server redis/redis.conf", "cp -r prometheus config",
		"grafana/dashboards/yuzhi.json", "prometheus/alerts_test.yml"} {
		testkit.Check(t, strings.Contains(script, file), "run does not use %q", file)
	}
	// The script run shortens these intervals, so they must exist.
	for _, line := range []string{"  scrape_interval: 5s", "  evaluation_interval: 5s"} {
		testkit.Check(t, strings.Contains(read(t, "prometheus/prometheus.yml"), line), "prometheus.yml has no %q",
			line)
	}
}
