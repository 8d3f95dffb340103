package llamarpc_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-run/headway/deploylane/llamarpc"
	"github.com/headway-run/headway/deploylane/ring"
)

// TestMain is also the server of these tests: started under this name it behaves as llama.cpp's does, for what the engine
// asks of it.
func TestMain(m *testing.M) {
	if os.Getenv("HEADWAY_TEST_FAKE_LLAMA") != "" {
		os.Exit(fakeServer(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func option(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

func fakeServer(args []string) int {
	stages := strings.Split(option(args, "--rpc"), ",")
	if slices.Contains(args, "--list-devices") {
		fmt.Println("Available devices:")
		for i, s := range stages {
			fmt.Printf("  RPC%d: %s (24105 MiB, 24000 MiB free)\n", i, s)
		}
		return 0
	}
	for _, d := range strings.Split(option(args, "-dev"), ",") {
		if !strings.HasPrefix(d, "RPC") {
			fmt.Fprintln(os.Stderr, "error while handling argument \"-dev\": invalid device: "+d)
			return 1
		}
	}
	http.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"status":"ok"}`) })
	http.HandleFunc("/completion", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Prompt string
			N      int `json:"n_predict"`
		}
		json.NewDecoder(r.Body).Decode(&q)
		switch q.Prompt {
		case "hang":
			<-r.Context().Done()
		case "die":
			os.Exit(3)
		case "end":
			fmt.Fprintf(w, `{"content":"done","stop_type":"eos","tokens_predicted":1}`)
		default:
			fmt.Fprintf(w, `{"content":%q,"stop_type":"limit","tokens_predicted":%d}`, strings.Join(args, " "), q.N)
		}
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(option(args, "--host")+":"+option(args, "--port"), nil))
	return 1
}

// fakeStage answers HELLO, and nothing else of the wire.
func fakeStage(t *testing.T) string {
	t.Helper()
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
			for _, ask := range []struct {
				bytes  int
				answer []byte
			}{{24, append([]byte{8, 0, 0}, make([]byte, 25)...)}, {0, []byte{1, 0, 0, 0}}, {4, make([]byte, 16)}} {
				if _, err := io.ReadFull(c, make([]byte, 9+ask.bytes)); err != nil {
					break
				}
				c.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(ask.answer))), ask.answer...))
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}

type fake struct {
	*llamarpc.Engine
	t    *testing.T
	self string
	at   []string
}

func newFake(t *testing.T) *fake {
	t.Setenv("HEADWAY_TEST_FAKE_LLAMA", "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, self: self, at: []string{fakeStage(t), fakeStage(t)}}
	f.fresh()
	return f
}

// fresh makes the engine, whose head will listen where nobody did a moment ago.
func (f *fake) fresh() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	defer l.Close()
	f.Engine = llamarpc.New(f.t.Context(), llamarpc.Config{Server: []string{f.self}, Stages: f.at, Listen: l.Addr().String(), Threads: 1, Log: filepath.Join(f.t.TempDir(), "log"), Release: "r"})
}

func (f *fake) command(load uint64, i int, alter func(*ring.Metadata, *ring.StageLoad)) ring.Command {
	var hops []ring.Hop
	for i, at := range f.at {
		hops = append(hops, ring.Hop{Agent: "tcp://" + at, Node: fmt.Sprintf("s%d", i)})
	}
	m := ring.Metadata{Schema: 1, Node: hops[i].Node, Generation: load}
	b := ring.StageLoad{Load: load, Stage: i, Stages: hops, Model: "/m.gguf", Layers: [2]int{3 * i, 3 + 5*i}, Device: fmt.Sprintf("RPC%d", i), Endpoint: f.at[i], Batch: 8, UBatch: 8, Context: 64, Parallel: 1}
	if alter != nil {
		alter(&m, &b)
	}
	body, err := json.Marshal(b)
	if err != nil {
		f.t.Fatal(err)
	}
	return ring.Command{Target: ring.Target{Kind: ring.ToAgent, Agent: hops[i].Agent}, Envelope: ring.Envelope{Content: ring.ContentLoad, Meta: m, Body: body}}
}

// load sends both and hears both; when somebody took the head's port meanwhile, again.
func (f *fake) load(load uint64, alter func(*ring.Metadata, *ring.StageLoad)) (out [2]ring.Answer) {
	f.t.Helper()
	for range 20 {
		if out = f.try(load, alter); !strings.Contains(out[0].Detail, "bind") {
			break
		}
		f.fresh()
	}
	return out
}

func (f *fake) try(load uint64, alter func(*ring.Metadata, *ring.StageLoad)) (out [2]ring.Answer) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	done := make(chan error)
	for i := range out {
		c := f.command(load, i, alter)
		go func() {
			var err error
			out[i], err = f.Load(ctx, c)
			done <- err
		}()
	}
	for range out {
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	}
	return out
}

// TestLoadPinsEverything: both LOADs wait for one another and are answered alike; the head gets devices, split and places
// from the plan and is left nothing to decide; a node that exists is not loaded again; and UNLOAD says what it found.
func TestLoadPinsEverything(t *testing.T) {
	f := newFake(t)
	for _, a := range f.load(7, nil) {
		if a.Status != ring.Succeeded || a.Resource != ring.Present || a.Generation != 7 {
			t.Fatalf("%+v", a)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	in, err := f.Inspect(ctx, "", "tcp://"+f.at[1])
	if err != nil || len(in.Devices) != 1 || in.Devices[0].Name != "RPC1" || len(in.Nodes) != 1 || in.Nodes[0].State != "ready" || *in.Nodes[0].Load != 7 {
		t.Fatalf("%+v %v", in, err)
	}
	if _, err := f.Inspect(ctx, "h1", "tcp://"+f.at[1]); !errors.As(err, new(ring.Unreachable)) {
		t.Errorf("from elsewhere: %v", err)
	}
	s, err := f.Session(ctx, ring.Route{Load: 7, Stages: []ring.Hop{{Agent: "tcp://" + f.at[0], Node: "s0"}, {Agent: "tcp://" + f.at[1], Node: "s1"}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Request(ctx, ring.Query{Prompt: []byte("x"), MaxTokens: 5})
	if err != nil || r.Stop != ring.StopLength || r.Count != 5 {
		t.Fatalf("%+v %v", r, err)
	}
	for _, want := range []string{"--rpc " + strings.Join(f.at, ","), "-dev RPC0,RPC1", "-ts 3,5", "-ngl 999", "-m /m.gguf", "-t 1"} {
		if !strings.Contains(string(r.Text), want) {
			t.Errorf("%q lacks %q", r.Text, want)
		}
	}
	if _, err := s.Settle(ctx, r); err != nil {
		t.Error(err)
	}
	if r, err := s.Request(ctx, ring.Query{Prompt: []byte("end"), MaxTokens: 5}); err != nil || r.Stop != ring.StopEnd {
		t.Errorf("%+v %v", r, err)
	}
	if a, err := f.Load(ctx, f.command(8, 0, nil)); err != nil || a.Status != ring.Rejected || a.Resource != ring.Present {
		t.Errorf("a second load: %+v %v", a, err)
	}
	for i := range 2 {
		if a, err := f.Unload(ctx, f.command(7, i, nil)); err != nil || a.Status != ring.Succeeded || a.Resource != ring.Absent {
			t.Errorf("%+v %v", a, err)
		}
		if a, err := f.Unload(ctx, f.command(7, i, nil)); err != nil || a.Status != ring.Rejected || a.Resource != ring.Absent {
			t.Errorf("again: %+v %v", a, err)
		}
	}
}

// TestLoadRefuses: what must not reach a command line, and what does not agree, is refused before a process starts; one
// stage alone is a silence with a name; and a head that ends says why.
func TestLoadRefuses(t *testing.T) {
	f := newFake(t)
	for what, alter := range map[string]func(*ring.Metadata, *ring.StageLoad){
		"two numbers":    func(m *ring.Metadata, _ *ring.StageLoad) { m.Generation++ },
		"a public place": func(_ *ring.Metadata, b *ring.StageLoad) { b.Endpoint = "0.0.0.0:1" },
		"another stage":  func(_ *ring.Metadata, b *ring.StageLoad) { b.Stage = 9 },
		"an option":      func(_ *ring.Metadata, b *ring.StageLoad) { b.Model = "--host=0.0.0.0" },
		"two devices":    func(_ *ring.Metadata, b *ring.StageLoad) { b.Device = "RPC0,RPC1" },
	} {
		if a := f.load(7, alter)[0]; a.Status != ring.Rejected || a.Resource != ring.Absent || a.Detail == "" {
			t.Errorf("%s: %+v", what, a)
		}
	}
	for _, a := range f.load(7, func(_ *ring.Metadata, b *ring.StageLoad) { b.Device = "CUDA0" }) {
		if a.Status != ring.Failed || !strings.Contains(a.Detail, "invalid device: CUDA0") {
			t.Errorf("%+v", a)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := f.Load(short, f.command(7, 0, nil)); !errors.As(err, new(ring.NoAnswer)) {
		t.Errorf("one alone: %v", err)
	}
}

// TestRequestsEnd: a request that hangs ends by its deadline while health is well, and a head that dies is named.
func TestRequestsEnd(t *testing.T) {
	f := newFake(t)
	f.load(7, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	route := ring.Route{Load: 7, Stages: []ring.Hop{{Agent: "tcp://" + f.at[0], Node: "s0"}}}
	s, err := f.Session(ctx, route)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := s.Request(short, ring.Query{Prompt: []byte("hang"), MaxTokens: 5}); !errors.As(err, new(ring.NoAnswer)) {
		t.Errorf("%v", err)
	}
	_, err = s.Request(ctx, ring.Query{Prompt: []byte("die"), MaxTokens: 5})
	if failed, ok := errors.AsType[ring.StageFailed](err); !ok || !strings.Contains(failed.State, "exit status 3") {
		t.Errorf("%v", err)
	}
	if _, err := s.Settle(ctx, ring.Reply{}); !errors.As(err, new(ring.StageFailed)) {
		t.Errorf("%v", err)
	}
	if _, err := f.Session(ctx, route); !errors.As(err, new(ring.StageFailed)) {
		t.Errorf("%v", err)
	}
}
