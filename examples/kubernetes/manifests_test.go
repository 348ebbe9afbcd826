package kubernetes

import (
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/yuzhi-go/yuzhi/hybrid/httplimit/rules"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// cluster holds the objects of the manifests by name.
type cluster struct {
	Config   map[string]*core.ConfigMap
	Services map[string]*core.Service
	Pods     map[string]core.PodSpec
	API      apps.Deployment
}

// manifests reads all files as strictly as an API server: an unknown field, also one in another
// case, or a repeated one is an error.
func manifests(t *testing.T) cluster {
	t.Helper()
	c := cluster{
		Config: map[string]*core.ConfigMap{}, Services: map[string]*core.Service{}, Pods: map[string]core.PodSpec{},
	}
	files, err := filepath.Glob("*.yaml")
	testkit.Must(t, err == nil && len(files) == 2, "%v, %v", files, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		testkit.NoErr(t, err)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var head struct {
				APIVersion, Kind string
				Metadata         struct{ Name string }
			}
			testkit.NoErr(t, yaml.Unmarshal([]byte(document), &head))
			read := func(object any) {
				fields, err := yaml.YAMLToJSONStrict([]byte(document))
				testkit.NoErr(t, err)
				unknown, err := json.UnmarshalStrict(fields, object)
				testkit.Must(t, err == nil && len(unknown) == 0, "%s: %s: %v %v", file, head.Kind, err, unknown)
			}
			name := head.Metadata.Name
			switch head.APIVersion + " " + head.Kind {
			case "v1 ConfigMap":
				c.Config[name] = new(core.ConfigMap)
				read(c.Config[name])
			case "v1 Service":
				c.Services[name] = new(core.Service)
				read(c.Services[name])
			case "apps/v1 Deployment":
				read(&c.API)
				c.Pods[name] = c.API.Spec.Template.Spec
			case "apps/v1 StatefulSet":
				var set apps.StatefulSet
				read(&set)
				c.Pods[name] = set.Spec.Template.Spec
			case "policy/v1 PodDisruptionBudget":
				read(new(policy.PodDisruptionBudget))
			case "networking.k8s.io/v1 NetworkPolicy":
				read(new(networking.NetworkPolicy))
			default:
				t.Errorf("%s: there is no check for a %s of %s", file, head.Kind, head.APIVersion)
			}
		}
	}
	return c
}

// flagOf returns the value of -name in the arguments of the API.
func (c cluster) flagOf(name string) string {
	for _, arg := range c.Pods["api"].Containers[0].Args {
		if value, ok := strings.CutPrefix(arg, "-"+name+"="); ok {
			return value
		}
	}
	return "no -" + name
}

// TestEveryReferenceLeadsSomewhere follows the ports of services and probes, the files of the programs, and
// the secret's keys.
func TestEveryReferenceLeadsSomewhere(t *testing.T) {
	c := manifests(t)
	secret, keys := secrets(t)
	files := map[string]string{"api": c.flagOf("rules"), "redis": c.Pods["redis"].Containers[0].Args[0]}
	for app, file := range files {
		pod, service := c.Pods[app], c.Services[app]
		container, ports := pod.Containers[0], map[string]int32{}
		for _, p := range container.Ports {
			ports[p.Name] = p.ContainerPort
		}
		testkit.Check(t, service.Spec.Selector["app"] == app && ports[service.Spec.Ports[0].TargetPort.StrVal] != 0,
			"service %s leads to %v", app, service.Spec)
		for _, probe := range []*core.Probe{container.ReadinessProbe, container.LivenessProbe} {
			get := probe.HTTPGet
			testkit.Check(t, get == nil || ports[get.Port.StrVal] != 0, "%s is probed at %v", app, get)
		}
		for _, e := range container.Env {
			from := e.ValueFrom.SecretKeyRef
			used := strings.Contains(strings.Join(container.Args, " "), "$("+e.Name+")") || e.Name == "REDISCLI_AUTH"
			testkit.Check(t, used && from.Name == secret && keys[from.Key] != "", "%s takes %s from %s",
				app, e.Name, from)
		}
		mount, volume := container.VolumeMounts[0], pod.Volumes[0]
		_, found := c.Config[volume.ConfigMap.Name].Data[path.Base(file)]
		at := mount.MountPath == path.Dir(file) && mount.SubPath == ""
		testkit.Check(t, found && at && mount.Name == volume.Name, "%s reads %s, which no ConfigMap has", app, file)
	}
	testkit.Check(t, keys["url"] == "redis://:$password@redis:6379/0" && keys["password"] == "$password" &&
		c.Services["redis"].Spec.Ports[0].Port == 6379, "%v", keys)
}

var (
	secretLine = regexp.MustCompile(`create secret generic (\w+) (?:.*\\\n)?.*`)
	literal    = regexp.MustCompile(`--from-literal=(\w+)=(\S+)`)
)

// secrets returns the keys of the secret that README.md makes, with $password in them.
func secrets(t *testing.T) (name string, keys map[string]string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	testkit.NoErr(t, err)
	line := secretLine.FindStringSubmatch(string(text))
	testkit.Must(t, line != nil, "README.md makes no secret")
	keys = map[string]string{}
	for _, pair := range literal.FindAllStringSubmatch(line[0], -1) {
		keys[pair[1]] = pair[2]
	}
	return line[1], keys
}

// TestTheRulesAreThoseOfTheAPI: the file in the ConfigMap is accepted, and has the rules and routes
// of examples/api; beside them it trusts the proxies in front.
func TestTheRulesAreThoseOfTheAPI(t *testing.T) {
	deployed, err := rules.Parse("rules.yaml", []byte(manifests(t).Config["api"].Data["rules.yaml"]))
	testkit.NoErr(t, err)
	text, err := os.ReadFile("../api/config/rules.yaml")
	testkit.NoErr(t, err)
	there, err := rules.Parse("rules.yaml", text)
	testkit.NoErr(t, err)
	there.Trusted, there.Version = deployed.Trusted, deployed.Version
	testkit.Check(t, reflect.DeepEqual(deployed, there) && len(deployed.Trusted) == 1,
		"it has %v, and examples/api %v", deployed, there)
}

// TestAReplicaHasTimeToEnd: it is killed later than its preStop and its own grace together.
func TestAReplicaHasTimeToEnd(t *testing.T) {
	c := manifests(t)
	pod := c.Pods["api"]
	grace, err := time.ParseDuration(c.flagOf("grace"))
	testkit.NoErr(t, err)
	before := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
	killed := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	testkit.Check(t, before > 0 && grace > 0 && killed >= before+grace+5*time.Second,
		"it is killed after %v; preStop is %v and -grace %v", killed, before, grace)
}
