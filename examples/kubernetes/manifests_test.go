package kubernetes

import (
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
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

// cluster holds the objects of the manifests, by name.
type cluster struct {
	configs     map[string]*core.ConfigMap
	deployments map[string]*apps.Deployment
	sets        map[string]*apps.StatefulSet
	services    map[string]*core.Service
	budgets     map[string]*policy.PodDisruptionBudget
	networks    map[string]*networking.NetworkPolicy
}

// manifests reads all files as strictly as an API server: an unknown field, also one in another
// case, or a repeated one is an error.
func manifests(t *testing.T) cluster {
	t.Helper()
	c := cluster{
		map[string]*core.ConfigMap{}, map[string]*apps.Deployment{}, map[string]*apps.StatefulSet{},
		map[string]*core.Service{}, map[string]*policy.PodDisruptionBudget{},
		map[string]*networking.NetworkPolicy{},
	}
	files, err := filepath.Glob("*.yaml")
	testkit.Must(t, err == nil && len(files) == 2, "%v, %v", files, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		testkit.NoErr(t, err)
		for _, document := range strings.Split(string(text), "\n---\n") {
			var head struct{ APIVersion, Kind string }
			testkit.NoErr(t, yaml.Unmarshal([]byte(document), &head))
			read := func(object any) {
				fields, err := yaml.YAMLToJSONStrict([]byte(document))
				testkit.NoErr(t, err)
				unknown, err := json.UnmarshalStrict(fields, object)
				testkit.Must(t, err == nil && len(unknown) == 0, "%s: %s: %v %v", file, head.Kind, err, unknown)
			}
			switch head.APIVersion + " " + head.Kind {
			case "v1 ConfigMap":
				add(t, c.configs, read, func(o *core.ConfigMap) string { return o.Name })
			case "apps/v1 Deployment":
				add(t, c.deployments, read, func(o *apps.Deployment) string { return o.Name })
			case "apps/v1 StatefulSet":
				add(t, c.sets, read, func(o *apps.StatefulSet) string { return o.Name })
			case "v1 Service":
				add(t, c.services, read, func(o *core.Service) string { return o.Name })
			case "policy/v1 PodDisruptionBudget":
				add(t, c.budgets, read, func(o *policy.PodDisruptionBudget) string { return o.Name })
			case "networking.k8s.io/v1 NetworkPolicy":
				add(t, c.networks, read, func(o *networking.NetworkPolicy) string { return o.Name })
			default:
				t.Errorf("%s: there is no check for a %s of %s", file, head.Kind, head.APIVersion)
			}
		}
	}
	return c
}

func add[T any](t *testing.T, all map[string]*T, read func(any), name func(*T) string) {
	object := new(T)
	read(object)
	testkit.Check(t, name(object) != "" && all[name(object)] == nil, "a %T %q twice", object, name(object))
	all[name(object)] = object
}

// pods returns the pod templates, by the app in their labels.
func (c cluster) pods() map[string]core.PodTemplateSpec {
	pods := map[string]core.PodTemplateSpec{}
	for _, d := range c.deployments {
		pods[d.Spec.Template.Labels["app"]] = d.Spec.Template
	}
	for _, s := range c.sets {
		pods[s.Spec.Template.Labels["app"]] = s.Spec.Template
	}
	return pods
}

// flagOf returns the value of -name in the arguments of the API.
func flagOf(t *testing.T, args []string, name string) string {
	t.Helper()
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "-"+name+"="); ok {
			return value
		}
	}
	t.Fatalf("the API has no -%s: %v", name, args)
	return ""
}

// TestWhatIsNamedIsThere: selectors select pods, and every used port, volume, ConfigMap and key
// exists.
func TestWhatIsNamedIsThere(t *testing.T) {
	c := manifests(t)
	pods := c.pods()
	testkit.Must(t, len(pods) == 2, "%d kinds of pods, want the API and Redis", len(pods))
	for name, d := range c.deployments {
		same := reflect.DeepEqual(d.Spec.Selector.MatchLabels, d.Spec.Template.Labels)
		testkit.Check(t, same, "deployment %s does not select its pods", name)
		testkit.Check(t, *d.Spec.Replicas == 3, "%s has %d replicas", name, *d.Spec.Replicas)
		for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
			same := reflect.DeepEqual(spread.LabelSelector.MatchLabels, d.Spec.Template.Labels)
			testkit.Check(t, same, "%s spreads pods of others", name)
		}
	}
	for name, s := range c.sets {
		same := reflect.DeepEqual(s.Spec.Selector.MatchLabels, s.Spec.Template.Labels)
		testkit.Check(t, same, "set %s does not select its pods", name)
		testkit.Check(t, c.services[s.Spec.ServiceName] != nil, "%s wants the service %s", name, s.Spec.ServiceName)
	}
	for name, b := range c.budgets {
		_, ok := pods[b.Spec.Selector.MatchLabels["app"]]
		testkit.Check(t, ok && b.Spec.MaxUnavailable.IntValue() == 1, "budget %s", name)
	}
	for app, pod := range pods {
		service := c.services[app]
		testkit.Must(t, service != nil && service.Spec.Selector["app"] == app, "no service leads to %s", app)
		container := pod.Spec.Containers[0]
		ports := map[string]int32{}
		for _, p := range container.Ports {
			ports[p.Name] = p.ContainerPort
		}
		for _, p := range service.Spec.Ports {
			testkit.Check(t, ports[p.TargetPort.StrVal] != 0, "service %s leads to port %v", app, p.TargetPort)
		}
		for _, probe := range []*core.Probe{container.ReadinessProbe, container.LivenessProbe} {
			testkit.Must(t, probe != nil, "%s lacks a probe", app)
			get := probe.HTTPGet
			testkit.Check(t, get == nil || ports[get.Port.StrVal] != 0, "%s is probed at %v", app, get)
		}
		volumes := map[string]*core.ConfigMapVolumeSource{}
		for _, v := range pod.Spec.Volumes {
			volumes[v.Name] = v.ConfigMap
			testkit.Check(t, v.ConfigMap != nil && c.configs[v.ConfigMap.Name] != nil, "%s: volume %s", app, v.Name)
		}
		for _, s := range c.sets {
			for _, v := range s.Spec.VolumeClaimTemplates {
				volumes[v.Name] = nil
			}
		}
		for _, m := range container.VolumeMounts {
			_, ok := volumes[m.Name]
			testkit.Check(t, ok && m.SubPath == "", "%s mounts %s%s", app, m.Name, m.SubPath)
		}
	}
	// The files in the programs' arguments are keys of the mounted ConfigMaps or secrets.
	for _, use := range []struct{ app, file string }{
		{"api", flagOf(t, pods["api"].Spec.Containers[0].Args, "rules")},
		{"redis", pods["redis"].Spec.Containers[0].Args[0]},
	} {
		found := false
		for _, m := range pods[use.app].Spec.Containers[0].VolumeMounts {
			for _, v := range pods[use.app].Spec.Volumes {
				if v.Name == m.Name && m.MountPath == path.Dir(use.file) {
					_, found = c.configs[v.ConfigMap.Name].Data[path.Base(use.file)]
				}
			}
		}
		testkit.Check(t, found, "%s reads %s, which no ConfigMap has", use.app, use.file)
	}
}

var (
	secretLine = regexp.MustCompile(`create secret generic (\w+) (?:.*\\\n)?.*`)
	literal    = regexp.MustCompile(`--from-literal=(\w+)=(\S+)`)
	reference  = regexp.MustCompile(`\$\((\w+)\)`)
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

// TestSecretsComeFromTheSecret: the variables in a container's arguments are in its environment,
// their values in the secret that README.md makes, and its URL leads to the service of Redis.
func TestSecretsComeFromTheSecret(t *testing.T) {
	c := manifests(t)
	secret, keys := secrets(t)
	for app, pod := range c.pods() {
		environment := map[string]bool{}
		for _, e := range pod.Spec.Containers[0].Env {
			from := e.ValueFrom.SecretKeyRef
			environment[e.Name] = true
			testkit.Check(t, from.Name == secret && keys[from.Key] != "", "%s takes %s from %s", app, e.Name, from)
		}
		for _, used := range reference.FindAllStringSubmatch(strings.Join(pod.Spec.Containers[0].Args, " "), -1) {
			testkit.Check(t, environment[used[1]], "%s has no %s in its environment", app, used[1])
		}
	}
	testkit.Check(t, keys["url"] == "redis://:$password@redis:6379/0" && keys["password"] == "$password", "%v",
		keys)
	port := c.services["redis"].Spec.Ports[0]
	testkit.Check(t, port.Port == 6379, "the service of Redis is at %d", port.Port)
	only := c.networks["redis"].Spec
	from := only.Ingress[0].From[0].PodSelector.MatchLabels["app"]
	testkit.Check(t, len(only.Ingress) == 1 && len(only.Ingress[0].From) == 1 && from == "api",
		"Redis is open to %v", only.Ingress)
	testkit.Check(t, only.PodSelector.MatchLabels["app"] == "redis" &&
		only.Ingress[0].Ports[0].Port.IntVal == 6379,
		"the policy of Redis is about %v", only.PodSelector)
	testkit.Check(t, len(only.PolicyTypes) == 2 && len(only.Egress) == 0, "Redis may call others")
}

// TestTheRulesAreThoseOfTheAPI: the file in the ConfigMap is accepted, and has the rules and routes
// of examples/api; beside them it trusts the proxies in front.
func TestTheRulesAreThoseOfTheAPI(t *testing.T) {
	deployed, err := rules.Parse("rules.yaml", []byte(manifests(t).configs["api"].Data["rules.yaml"]))
	testkit.NoErr(t, err)
	text, err := os.ReadFile("../api/config/rules.yaml")
	testkit.NoErr(t, err)
	there, err := rules.Parse("rules.yaml", text)
	testkit.NoErr(t, err)
	for _, both := range [][2]any{{deployed.Rules, there.Rules}, {deployed.Routes, there.Routes}} {
		testkit.Check(t, reflect.DeepEqual(both[0], both[1]), "it has %v, and examples/api %v", both[0], both[1])
	}
	testkit.Check(t, len(deployed.Trusted) == 1, "it trusts %v", deployed.Trusted)
}

// TestAReplicaHasTimeToEnd: it is killed later than its preStop and its own grace together.
func TestAReplicaHasTimeToEnd(t *testing.T) {
	pod := manifests(t).pods()["api"].Spec
	grace, err := time.ParseDuration(flagOf(t, pod.Containers[0].Args, "grace"))
	testkit.NoErr(t, err)
	before := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
	killed := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	testkit.Check(t, before > 0 && grace > 0 && killed >= before+grace+5*time.Second,
		"it is killed after %v; preStop is %v and -grace %v", killed, before, grace)
}

// TestPodsMayDoLittle: pods have no root, no capabilities, no writable file system, and a memory
// limit.
func TestPodsMayDoLittle(t *testing.T) {
	for app, pod := range manifests(t).pods() {
		s := pod.Spec.SecurityContext
		confined := s.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault
		testkit.Check(t, *s.RunAsNonRoot && *s.RunAsUser > 0 && confined && !*pod.Spec.AutomountServiceAccountToken,
			"%s may do much", app)
		for _, c := range pod.Spec.Containers {
			own := c.SecurityContext
			testkit.Check(t, !*own.AllowPrivilegeEscalation && *own.ReadOnlyRootFilesystem &&
				slices.Equal(own.Capabilities.Drop, []core.Capability{"ALL"}), "%s may do much", app)
			r := c.Resources
			testkit.Check(t, !r.Requests.Cpu().IsZero() && r.Limits.Memory().Cmp(*r.Requests.Memory()) >= 0 &&
				!r.Requests.Memory().IsZero(), "%s may take %v", app, r)
		}
	}
}
