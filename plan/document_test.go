package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/plan"
)

type ringish struct {
	Name, Kind, At, Version, Path string
	Batch                         int64
	Margin                        float64
	Wait                          time.Duration
	Keep                          int64
	On                            bool
	Hosts, Layers                 []string
}

func readRingish(doc *plan.Document) (r ringish) {
	f := doc.Root().Fields("name", "kind", "at", "version", "path", "batch", "margin", "wait", "keep", "on", "hosts", "layers")
	r.Name = f["name"].Required("a name, such as name: ring").Word("")
	r.Kind = f["kind"].Choice("flat", "flat", "deep")
	r.At = f["at"].Text("nowhere")
	r.Version = f["version"].Any("")
	r.Path = f["path"].Path("")
	r.Batch = f["batch"].Int(1, 4096, 512)
	r.Margin = f["margin"].Number(0, 1, 0.5)
	r.Wait = f["wait"].Duration(time.Minute)
	r.Keep = f["keep"].Bytes(1 << 20)
	r.On = f["on"].Bool(true)
	for name, v := range f["hosts"].Entries() {
		r.Hosts = append(r.Hosts, name+"="+v.Fields("addr")["addr"].Required("addr: HOST:PORT").Text(""))
	}
	for _, v := range f["layers"].List(3) {
		r.Layers = append(r.Layers, v.Word(""))
	}
	return r
}

func TestADocumentIsReadByType(t *testing.T) {
	doc := plan.ReadDocument("r.yaml", []byte(`name: ring
kind: deep
at: here
version: 0.10
path: a/./b
batch: 64
margin: 0.25
wait: 2m30s
keep: 256MiB
on: false
hosts:
  b: {addr: "b:1"}
  a: {addr: "a:1"}
layers: [x, y]
`))
	want := ringish{"ring", "deep", "here", "0.10", "a/b", 64, 0.25, 150 * time.Second, 256 << 20, false, []string{"b=b:1", "a=a:1"}, []string{"x", "y"}}
	if diff := cmp.Diff(want, readRingish(doc)); diff != "" || doc.Err() != nil {
		t.Fatalf("%s%v", diff, doc.Err())
	}
	bare := plan.ReadDocument("r.yaml", []byte("name: ring\n"))
	want = ringish{Name: "ring", Kind: "flat", At: "nowhere", Batch: 512, Margin: 0.5, Wait: time.Minute, Keep: 1 << 20, On: true}
	if diff := cmp.Diff(want, readRingish(bare)); diff != "" || bare.Err() != nil {
		t.Fatalf("what is left out: %s%v", diff, bare.Err())
	}
}

func TestADocumentSaysEverythingThatIsWrongAtOnce(t *testing.T) {
	doc := plan.ReadDocument("r.yaml", []byte(`kind: deeep
at: 12
batch: 3.7
batchs: 4
margin: 2
wait: 90
keep: 256
on: yes
hosts: {a: {addrs: x}, "b c": {}}
layers: [a, b, c, d]
path: ../x
`))
	readRingish(doc)
	want := `r.yaml:1:1: name is missing: expected a name, such as name: ring
r.yaml:1:7: kind is "deeep": expected one of flat, deep; did you mean deep?
r.yaml:2:5: at is "12" without quotes: expected text; quote it: "12"
r.yaml:3:8: batch is "3.7": expected a whole number in plain digits; it would have to be rounded
r.yaml:4:1: unknown key "batchs": expected one of name, kind, at, version, path, batch, margin, wait, keep, on, hosts, layers; did you mean batch?
r.yaml:5:9: margin is "2": expected 0 to 1
r.yaml:6:7: wait is "90": expected a duration such as 36h, 90m, 2d or 45s; give a unit: d, h, m, s or ms
r.yaml:7:7: keep is "256": expected a size such as 256MiB; give a unit: 256B, 256MiB
r.yaml:8:5: on is "yes": expected true or false; write true or false, without quotes
r.yaml:9:12: hosts.a.addr is missing: expected addr: HOST:PORT
r.yaml:9:13: unknown key "addrs" in hosts.a: expected one of addr; did you mean addr?
r.yaml:9:24: a key of hosts is "b c": expected a letter or digit, then letters, digits, dots, dashes or underscores
r.yaml:10:9: layers has 4 entries: expected at most 3
r.yaml:11:7: path is "../x": expected a path inside this repository`
	if diff := cmp.Diff(want, doc.Err().Error()); diff != "" {
		t.Fatal(diff)
	}
}

func TestADocumentIsStrictAboutItsForm(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"anchor":    {"name: &a x\n", "r.yaml:1:7: anchor &a: expected no anchors; write it out"},
		"twice":     {"name: a\nname: b\n", `r.yaml:2:1: "name" is already given in line 1: expected each key once; delete one of the two`},
		"second":    {"name: a\n---\nname: b\n", "r.yaml:2:1: a second YAML document: expected one document per file"},
		"list":      {"- a\n", "r.yaml:1:1: the file is a list: expected a mapping"},
		"empty":     {"", "r.yaml:1:1: the file holds nothing: expected a mapping"},
		"large":     {strings.Repeat("#", plan.MaxFileBytes+1), "r.yaml: the file has 256 KiB: expected at most 256 KiB"},
		"a secret":  {"name: AKIAIOSFODNN7EXAMPLE\n", "r.yaml:1:7: this value looks like an AWS access key"},
		"wrong yet": {"name: [a\n", "r.yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			doc := plan.ReadDocument("r.yaml", []byte(c.file))
			readRingish(doc)
			err := doc.Err()
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Fatalf("%v, expected %s", err, c.want)
			}
			if name == "list" && strings.Contains(err.Error(), "missing") {
				t.Fatalf("what cannot be read lacks nothing: %v", err)
			}
		})
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte("name: a\nhosts: {a: {addr: x}}\nlayers: [a]\nkeep: 1MiB\n"))
	f.Add([]byte("hosts: [a]\nlayers: {a: b}\nname: [1]\nkeep: {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc := plan.ReadDocument("r.yaml", data)
		r := readRingish(doc)
		if doc.Err() == nil && (r.Name == "" || r.Batch < 1 || r.Keep < 0 || r.Wait <= 0) {
			t.Fatalf("no problem, and %+v", r)
		}
	})
}
