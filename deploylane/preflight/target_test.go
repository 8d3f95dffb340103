package preflight

import (
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// serving is a host as it should be: what a target file says of it is true.
type serving struct {
	url, tcp, dir string
}

func newServing(t *testing.T) serving {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/late":
			w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		case "/moved":
			http.Redirect(w, r, "/", http.StatusFound)
		}
		fmt.Fprint(w, `{"model": "digits-7"}`)
	}))
	t.Cleanup(web.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "agent h1 ready")
			c.Close()
		}
	}()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"caps": "physical-v4\nlayer-window=1; backend=hip\n", "devices": "Available devices:\n  ROCm0: MI250 (64 GiB)\n  ROCm1: MI250\n",
		"v1": "build 7 (abc)\n", "v1-too": "build 7 (abc)\n", "v2": "build 8 (abd)\n", "config": "flash = off\njournal = on\n",
		"nodes": "s0@12 ready\ns1@12 ready\n", "n12": "12\n", "n012": " 012\n", "n13": "13\n", "hello": "hello\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return serving{web.URL, "tcp://" + l.Addr().String(), dir}
}

func (s serving) run(t *testing.T, checks ...string) Report {
	t.Helper()
	text := "target: host-1\nchecks:\n"
	for i, c := range checks {
		text += fmt.Sprintf("  - {id: c%d, %s}\n", i, strings.NewReplacer("URL", s.url, "TCP", s.tcp, "DIR", s.dir).Replace(c))
	}
	target, err := ReadTarget("t.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Run(t.Context(), target.Name, Of(target, s.dir), nil)
}

// TestKinds: each kind of check passes what is as written, refuses what is not, and does not know what it cannot look at.
func TestKinds(t *testing.T) {
	s := newServing(t)
	for _, c := range []struct {
		check string
		want  Verdict
		says  string
	}{
		{`kind: address, url: "URL/", says: digits-7`, OK, ""},
		{`kind: address, url: "TCP", says: agent h1`, OK, ""},
		{`kind: address, url: "URL/", says: digits-8`, Refused, "something else answers"},
		{`kind: address, url: "URL/moved", says: digits-7`, Unknown, "302"},
		{`kind: address, url: "TCP", says: agent h2`, Refused, "something else answers"},
		{`kind: address, url: "tcp://127.0.0.1:1", says: x`, Refused, "not reached from here"},
		{`kind: clock, url: "URL/", within: 90s`, OK, ""},
		{`kind: clock, url: "URL/late", within: 90s`, Refused, "the clocks differ by"},
		{`kind: clock, url: "http://127.0.0.1:1/", within: 90s`, Unknown, ""},
		{`kind: disk, path: DIR, free: 1B`, OK, ""},
		{`kind: disk, path: DIR, free: 1024TiB`, Refused, "bytes are free"},
		{`kind: disk, path: DIR/none, free: 1B`, Unknown, ""},
		{`kind: capabilities, run: [cat, caps], needs: [physical-v4, layer-window, backend=hip]`, OK, ""},
		{`kind: capabilities, run: [cat, caps], needs: [layer-window=2]`, Refused, `"layer-window=2" is not in its list`},
		{`kind: capabilities, run: [cat, none], needs: [x]`, Unknown, ""},
		{`kind: capabilities, run: [no-such-program], needs: [x]`, Unknown, ""},
		{`kind: devices, run: [cat, devices], needs: [ROCm1]`, OK, ""},
		{`kind: devices, run: [cat, devices], needs: [CUDA0]`, Refused, `"CUDA0" is not in its list`},
		{`kind: devices, run: [cat, /dev/zero], needs: [CUDA0]`, Unknown, "it prints more than"},
		{`kind: versions, runs: [[cat, v1], [cat, v1-too]]`, OK, ""},
		{`kind: versions, runs: [[cat, v1], [cat, v2]]`, Refused, `command 1 says "build 7 (abc)", command 2 says "build 8 (abd)"`},
		{`kind: versions, runs: [[cat, v1], [cat, none]]`, Unknown, ""},
		{`kind: versions, runs: [["true"], ["true"]]`, Unknown, "prints nothing"},
		{`kind: feature, run: [cat, config], says: journal = on`, OK, ""},
		{`kind: feature, run: [cat, config], says: flash = on`, Refused, "no line says so"},
		{`kind: feature, run: [cat, none], says: x`, Unknown, ""},
		{`kind: present, run: [cat, nodes], needs: [s0@12, s1@12]`, OK, ""},
		{`kind: present, run: [cat, nodes], needs: [s0@12, s2@12]`, Refused, `"s2@12" is not in its list`},
		{`kind: present, run: [cat, none], needs: [s0]`, Unknown, ""},
		{`kind: absent, run: [cat, nodes], names: [s0, s2@12]`, OK, ""},
		{`kind: absent, run: [cat, nodes], names: [s2@12, s1@12]`, Refused, `"s1@12" is there already`},
		{`kind: absent, run: [cat, none], names: [s0]`, Unknown, ""},
		{`kind: equal, runs: [[cat, n12], [cat, n012]]`, OK, ""},
		{`kind: equal, runs: [[cat, n12], [cat, n012], [cat, n13]]`, Refused, "command 1 says 12, command 3 says 13"},
		{`kind: equal, runs: [[cat, n12], [cat, hello]]`, Unknown, `cat prints "hello"`},
		{`kind: equal, runs: [["true"], ["true"]]`, Unknown, `true prints ""`},
		{`kind: bound, terms: [[2, 3], [6]], run: [cat, n12]`, OK, ""},
		{`kind: bound, terms: [[13]], run: [cat, n12]`, Refused, "it takes 12: expected at least 13, which follows from [[13]]"},
		{`kind: bound, terms: [[9007199254740991, 9007199254740991]], run: [cat, n12]`, Refused, "more than 64 bits"},
		{`kind: bound, terms: [[1]], run: [cat, hello]`, Unknown, `cat prints "hello"`},
	} {
		r := s.run(t, c.check)
		if f := r.Findings[0]; f.Verdict != c.want || f.Verdict != OK && f.Fix == "" || r.Blocked == (c.want == OK) || !strings.Contains(f.String(), c.says) || f.Subject != "host-1" {
			t.Errorf("%s: %s", c.check, f)
		}
	}
}

// TestEveryClassHasAKind: each drift of what was written down can be looked for on any target.
func TestEveryClassHasAKind(t *testing.T) {
	for _, class := range []Class{Addressee, Equal, Derived, FromPeer, Required, Inventory, Release} {
		found := false
		for _, k := range kinds {
			found = found || k.class == class
		}
		if !found {
			t.Errorf("no kind of check is against %s", class)
		}
	}
}

// TestSumOf holds the arithmetic of a bound against unbounded integers.
func TestSumOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.SliceOfN(rapid.SliceOfN(rapid.Uint64Range(1, 1<<40), 1, 4), 1, 4).Draw(t, "terms")
		want := new(big.Int)
		for _, factors := range terms {
			product := big.NewInt(1)
			for _, f := range factors {
				product.Mul(product, new(big.Int).SetUint64(f))
			}
			want.Add(want, product)
		}
		if got, fits := sumOf(terms); fits != want.IsUint64() || fits && got != want.Uint64() {
			t.Fatalf("%v: %d, %v; want %s", terms, got, fits, want)
		}
	})
}

// TestAllAtOnce: every failure of a target is in one report, the cheap ones first.
func TestAllAtOnce(t *testing.T) {
	s := newServing(t)
	r := s.run(t, `kind: feature, run: [cat, config], says: x`, `kind: address, url: "URL/", says: x`, `kind: disk, path: DIR, free: 1024TiB`, `kind: address, url: "URL/", says: digits`)
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Rule+" "+string(f.Verdict))
	}
	if want := "c2 refused,c1 refused,c3 ok,c0 refused"; strings.Join(got, ",") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestSilenceIsUnknown: what does not answer in time is unknown, never fine, and says after how long.
func TestSilenceIsUnknown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, k := range []Look{
		{Kind: "address", URL: "tcp://" + l.Addr().String(), Says: "x"}, {Kind: "address", URL: "http://" + l.Addr().String(), Says: "x"},
		{Kind: "clock", URL: "http://" + l.Addr().String()}, {Kind: "present", Run: []string{"sleep", "60"}, Needs: []string{"x"}},
		{Kind: "equal", Runs: [][]string{{"sleep", "60"}, {"sleep", "60"}}},
	} {
		f := k.within(t.Context(), "", "host-1", 50*time.Millisecond)
		if f.Verdict != Unknown || f.Subject != "host-1" || strings.Count(f.Found, "no answer within 50ms") != 1 || f.Fix == "" {
			t.Errorf("%+v: %s", k, f)
		}
	}
}

func TestReadTargetRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"target: a\nchecks: []\n":                              "t.yaml:2:9: checks is empty: expected at least one check",
		"target: a\n":                                          "t.yaml:1:1: checks is missing",
		"target: a\nchecks: [{id: a, kind: ping}]\n":           `t.yaml:2:24: checks[0].kind is "ping": expected one of absent, address, bound, capabilities, clock, devices, disk, equal, feature, present, versions`,
		"target: a\nchecks: [{id: a, kind: disk, path: /x}]\n": "checks[0].free is missing",
		"target: a\nchecks: [{id: a, kind: disk, path: /x, free: 1GiB, url: \"http://a\"}]\n":                         "checks[0].url is given: expected of kind disk: [path free]",
		"target: a\nchecks: [{id: A, kind: disk, path: /x, free: 1GiB}]\n":                                            `id is "A"`,
		"target: a\nchecks: [{id: a, kind: disk, path: /x, free: 1GiB}, {id: a, kind: disk, path: /x, free: 1GiB}]\n": "check a is given twice",
		"target: a\nchecks: [{id: a, kind: address, url: \"ftp://a\", says: x}]\n":                                    `url is "ftp://a"`,
		"target: a\nchecks: [{id: a, kind: address, url: \"http://u:p@a/\", says: x}]\n":                              "without a password",
		"target: a\nchecks: [{id: a, kind: versions, runs: [[a]]}]\n":                                                 "runs has one command",
		"target: a\nchecks: [{id: a, kind: bound, terms: [[]], run: [a]}]\n":                                          "terms[0] is empty",
		"target: a\nchecks: [{id: a, kind: bound, terms: [[1, 0]], run: [a]}]\n":                                      "terms[0][1] is 0",
		"target: a\nchecks: [{id: a, kind: bound, terms: 12, run: [a]}]\n":                                            "terms is",
		"target: a\nchecks: [{id: a, kind: absent, run: [a], needs: [b]}]\n":                                          "names is missing",
		"target: a\nchecks: [{id: a, kind: devices, run: [], needs: [a]}]\n":                                          "run is empty",
	} {
		target, err := ReadTarget("t.yaml", []byte(text))
		if err == nil || target != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

// FuzzReadTarget: any bytes give a target or an error, and a target has something to look at.
func FuzzReadTarget(f *testing.F) {
	f.Add([]byte("target: a\nchecks: [{id: a, kind: disk, path: /x, free: 1GiB}]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		target, err := ReadTarget("t.yaml", b)
		if (target == nil) == (err == nil) || target != nil && len(target.Checks) == 0 {
			t.Fatalf("%+v, %v", target, err)
		}
	})
}
