package httplimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/yuzhi-go/yuzhi/hybrid"
	"github.com/yuzhi-go/yuzhi/hybrid/httplimit"
	"github.com/yuzhi-go/yuzhi/lease"
)

func TestHeader(t *testing.T) {
	key := httplimit.Header("x-user")
	fields := func(values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["X-User"] = values }
	}
	check(t, keyOf(key, user("ann")) == "ann", "the name is not that of http.Header")
	r := httptest.NewRequest("GET", "/", nil)
	fields("ann", "bob")(r) // which one did the gateway write?
	_, err := httplimit.FirstOf(key, httplimit.OneKey)(r)
	check(t, err != nil && !errors.Is(err, httplimit.ErrNoKey), "%v", err)
	check(t, keyOf(key, fields("")) == "no key" && keyOf(key) == "no key", "an empty field is a key")
}

// A field that is an address counts as the address, as ClientIP does; any other value is its own key.
func TestAnAddressInAFieldCountsAsOne(t *testing.T) {
	for value, want := range map[string]string{
		"192.0.2.7":                    "192.0.2.7",
		"192.0.2.7:4711":               "192.0.2.7",
		"::ffff:192.0.2.7":             "192.0.2.7",
		"[::ffff:192.0.2.7]:80":        "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":         "2001:db8:1:2::/64",
		"2001:DB8:1:2::9":              "2001:db8:1:2::/64",
		"[2001:db8:1:2::9]":            "2001:db8:1:2::/64",
		"[2001:db8:1:2::9]:4711":       "2001:db8:1:2::/64",
		"fe80::1%eth0":                 "fe80::/64",
		"192.0.2.7:ann":                "192.0.2.7:ann",
		"192.0.2.7:123456":             "192.0.2.7:123456",
		"192.0.2.7, 192.0.2.8":         "192.0.2.7, 192.0.2.8",
		"tenant:42":                    "tenant:42",
		"00:1a:2b:3c:4d:5e":            "00:1a:2b:3c:4d:5e", // a MAC address
		"2001:db8:1:2::9 ann":          "2001:db8:1:2::9 ann",
		"2001:db8:1:2:":                "2001:db8:1:2:",
		"sk-2001:db8:1:2::9":           "sk-2001:db8:1:2::9",
		"2f1acc6c3a606b082e5eef5e5414": "2f1acc6c3a606b082e5eef5e5414",
	} {
		got := keyOf(httplimit.Header("CF-Connecting-IP"), func(r *http.Request) {
			r.Header.Set("CF-Connecting-IP", value)
		})
		check(t, got == want, "%q is %q, want %q", value, got, want)
		check(t, want == value || got == keyOf(httplimit.ClientIP(), remote(value)), "%q is %q", value, got)
	}
}

// Pattern and Path return the findings of http.ServeMux.
func TestPatternAndPath(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /upload/{bucket}", func(_ http.ResponseWriter, r *http.Request) {
		route, err := httplimit.Pattern(r)
		check(t, err == nil && route == "POST /upload/{bucket}", "%q, %v", route, err)
		bucket, err := httplimit.Path("bucket")(r)
		check(t, err == nil && bucket == "photos", "%q, %v", bucket, err)
		_, err = httplimit.Path("other")(r)
		check(t, err != nil, "a wildcard that is not there")
	})
	w := ask(mux, func(r *http.Request) { r.Method, r.URL.Path = "POST", "/upload/photos" })
	check(t, w.Code == 200, "%d", w.Code)
	a, err := httplimit.OneKey(nil)
	check(t, err == nil && a != "", "%q %v", a, err)
}

// FuzzCombine checks that different parts make different keys.
func FuzzCombine(f *testing.F) {
	f.Add("a", "bc", "ab", "c")
	f.Add("1:a,1:b", "c", "1:a", "1:b,1:c")
	f.Add("\x00", "a", "\x00a", ":")
	f.Add("5", ":5", "5:5", "5")
	f.Add("a,:b", "c", "a", "b,:c")
	f.Add("a,", "b", "a", ",b")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		joined := func(parts ...string) string {
			var keys []httplimit.KeyFunc
			for _, p := range parts {
				keys = append(keys, func(*http.Request) (string, error) { return p, nil })
			}
			return keyOf(httplimit.Combine(keys...))
		}
		if a == "" || b == "" || c == "" || d == "" {
			t.Skip()
		}
		check(t, (joined(a, b) == joined(c, d)) == (a == c && b == d), "%q %q and %q %q", a, b, c, d)
		nests := joined(joined(a, b), c) == joined(a, b, c)
		check(t, joined(a, b) != joined(a+b) && joined(a) != joined(a, b) && !nests, "%q %q %q", a, b, c)
	})
}

// FirstOf goes on where there is no key, and ends where there is a wrong one. Keys of different kinds differ,
// whatever they are.
func TestFirstOf(t *testing.T) {
	wrong := errors.New("wrong")
	returns := func(key string, err error) httplimit.KeyFunc {
		return func(*http.Request) (string, error) { return key, err }
	}
	none := returns("", fmt.Errorf("%w: of this kind", httplimit.ErrNoKey))
	for _, c := range []struct {
		keys []httplimit.KeyFunc
		want string
		err  error
	}{
		{[]httplimit.KeyFunc{returns("a", nil), returns("b", nil)}, "0:a", nil},
		{[]httplimit.KeyFunc{none, returns("", nil), returns("a", nil)}, "2:a", nil},
		{[]httplimit.KeyFunc{none, returns("1.2.3.4", nil)}, "1:1.2.3.4", nil},
		{[]httplimit.KeyFunc{returns("1:1.2.3.4", nil)}, "0:1:1.2.3.4", nil},
		{[]httplimit.KeyFunc{returns("a", wrong), returns("b", nil)}, "", wrong},
		{[]httplimit.KeyFunc{none, none}, "", httplimit.ErrNoKey},
	} {
		got, err := httplimit.FirstOf(c.keys...)(nil)
		check(t, got == c.want && errors.Is(err, c.err), "%q, %v; want %q, %v", got, err, c.want, c.err)
	}
}

// An attacker with any number of keys of any length exhausts no memory: the limiter has its KeysMax, and
// long keys are hashed. Earlier clients are still served.
func TestManyKeysHaveABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keysMax = 50
		limiter := newLimiter(t, hybrid.Config{Limits: []hybrid.Limit{hybrid.PerHour(2)}, KeysMax: keysMax})
		h := httplimit.Middleware(limiter, httplimit.Combine(httplimit.Header("X-User"), httplimit.OneKey))(&served{})
		check(t, ask(h, user("ann")).Code == 200, "ann is denied")
		seen := map[int]int{}
		for i := range 1000 {
			seen[ask(h, user(strings.Repeat("x", i*7)+fmt.Sprint(i))).Code]++
			check(t, limiter.Stats().Keys <= keysMax, "%d keys of %d", limiter.Stats().Keys, keysMax)
		}
		check(t, seen[200] >= keysMax-1 && seen[200]+seen[503] == 1000, "%v", seen)

		long := strings.Repeat("y", 100*lease.KeyMax)
		free := httplimit.Middleware(limiterOf(t, hybrid.PerHour(2)), httplimit.Header("X-User"))(&served{})
		check(t, slices.Equal(codes(free, 3, user(long)), []int{200, 200, 429}), "a long key has no limit")
		check(t, slices.Equal(codes(free, 3, user(long+"z")), []int{200, 200, 429}), "another long key is the same")
	})
}
