package kubernetes

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/yuzhi-go/yuzhi/examples/internal/testnet"
	"github.com/yuzhi-go/yuzhi/internal/redistest"
	"github.com/yuzhi-go/yuzhi/internal/testkit"
)

// TestItStartsAsItIsDeployed: a Redis and three replicas of the API, with the arguments and the
// files of the manifests. The probes succeed, the replicas share one limit, another ConfigMap
// changes it for all of them, and a replica ends on a signal without an error.
func TestItStartsAsItIsDeployed(t *testing.T) {
	c := manifests(t)
	_, keys := secrets(t)
	const password = "so-secret"
	conf := directives(c.Config["redis"].Data["redis.conf"])
	server := redistest.Start(t, append(conf, "--requirepass", password)...)
	url := strings.NewReplacer("$password", password, "redis:6379", server.Addr).Replace(keys["url"])
	url += testnet.Patience
	options, err := redis.ParseURL(url)
	testkit.NoErr(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	for setting, want := range map[string]string{"maxmemory-policy": "noeviction", "appendonly": "yes",
		"save": ""} {
		got, err := client.ConfigGet(t.Context(), setting).Result()
		testkit.Check(t, err == nil && got[setting] == want, "%s is %v, want %q (%v)", setting, got, want, err)
	}

	folder, program := t.TempDir(), filepath.Join(t.TempDir(), "api")
	config := c.Config["api"].Data
	mount(t, folder, "1", config)
	out, err := exec.Command("go", "build", "-o", program, "../api").CombinedOutput()
	testkit.Must(t, err == nil, "%s", out)
	api := c.Pods["api"].Containers[0]
	var users []string
	var replicas []*exec.Cmd
	for range *c.API.Spec.Replicas {
		args, ports := []string(nil), map[string]string{} // by flag, the name of the port
		for _, arg := range api.Args {
			for _, p := range api.Ports { // the pod's port, on an address of its own
				if flag, ok := strings.CutSuffix(arg, fmt.Sprintf("=:%d", p.ContainerPort)); ok {
					ports[flag], arg = p.Name, flag+"=127.0.0.1:0"
				}
			}
			arg = strings.NewReplacer("$(REDIS_URL)", url, api.VolumeMounts[0].MountPath, folder).Replace(arg)
			args = append(args, arg)
		}
		testkit.Must(t, len(ports) == len(api.Ports), "the API does not listen at its ports: %v", api.Args)
		output, err := os.Create(filepath.Join(t.TempDir(), "output"))
		testkit.NoErr(t, err)
		said := func() string { text, _ := os.ReadFile(output.Name()); return string(text) }
		// A machine that is busy gives up no call of Redis and ends no replica early.
		replica := exec.Command(program, append(args, "-call-timeout=1m", "-grace=1h")...)
		replica.Stdout, replica.Stderr = output, output
		testkit.NoErr(t, replica.Start())
		t.Cleanup(func() {
			_ = replica.Process.Kill()
			_ = replica.Wait()
			output.Close()
			if t.Failed() {
				t.Log(said())
			}
		})
		testkit.Eventually(t, "a replica that serves", func() bool { return serving.MatchString(said()) })
		at := serving.FindStringSubmatch(said())
		addresses := map[string]string{ports["-listen"]: at[1], ports["-admin"]: at[2]}
		for _, probe := range []string{api.LivenessProbe.HTTPGet.Path, api.ReadinessProbe.HTTPGet.Path} {
			testkit.Eventually(t, probe, func() bool { return get("http://"+addresses["admin"]+probe, "") == 200 })
		}
		users, replicas = append(users, "http://"+addresses["http"]), append(replicas, replica)
	}

	admitted, from := 0, time.Now()
	for i := range 90 { // the user may have 40 of them, and 20 a second
		switch status := get(users[i%len(users)]+"/items/7", "ann"); status {
		case http.StatusOK:
			admitted++
		case http.StatusTooManyRequests:
		default:
			t.Errorf("the API answers %d", status)
		}
	}
	most := 40 + 20*time.Since(from).Seconds()
	testkit.Check(t, admitted > 0 && float64(admitted) <= most,
		"%d are admitted, at most %.1f may be", admitted, most)

	// Another ConfigMap is in force without a restart: of 12 requests a new user now has 3.
	config["rules.yaml"] = strings.Replace(config["rules.yaml"], "[20/s burst 40]", "[1/h burst 3]", 1)
	mount(t, folder, "2", config)
	attempts := 0
	testkit.Eventually(t, "the new limit", func() bool {
		time.Sleep(300 * time.Millisecond) // the pace: the address, too, has a limit
		attempts++
		admitted := 0
		for i := range 12 {
			if get(users[i%len(users)]+"/items/7", fmt.Sprint("user ", attempts)) == http.StatusOK {
				admitted++
			}
		}
		return admitted == 3
	})

	for _, replica := range replicas {
		testkit.NoErr(t, replica.Process.Signal(syscall.SIGTERM))
		err := replica.Wait()
		testkit.Check(t, err == nil, "it ended with %v", err)
	}
}

// serving matches the line that a replica logs when it listens.
var serving = regexp.MustCompile(`serving users=(\S+) operators=(\S+)\n`)

// mount puts files into folder as the kubelet does: the files are links into ..data, which is a
// link to the folder of the newest version and is replaced in one step.
func mount(t *testing.T, folder, version string, files map[string]string) {
	t.Helper()
	testkit.NoErr(t, os.Mkdir(filepath.Join(folder, version), 0o700))
	for name, text := range files {
		testkit.NoErr(t, os.WriteFile(filepath.Join(folder, version, name), []byte(text), 0o600))
		if _, err := os.Lstat(filepath.Join(folder, name)); err != nil {
			testkit.NoErr(t, os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)))
		}
	}
	testkit.NoErr(t, os.Symlink(version, filepath.Join(folder, "..new")))
	testkit.NoErr(t, os.Rename(filepath.Join(folder, "..new"), filepath.Join(folder, "..data")))
}

// directives returns the lines of a redis.conf as arguments of redis-server.
func directives(conf string) (args []string) {
	for line := range strings.Lines(conf) {
		if words := strings.Fields(line); len(words) > 1 && words[0] != "#" {
			args = append(args, "--"+words[0], strings.Trim(strings.Join(words[1:], " "), `"`))
		}
	}
	return args
}

// get returns the status of an answer, 0 for none.
func get(url, user string) int {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	r.Header.Set("X-User", user)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}
