package plan

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// job text pieces: one field per line, so that lines may be shuffled and written in several ways.
type piece struct {
	key string
	val any // string (plain scalar), quoted, []piece (mapping), []string (list)
}

// quoted is a scalar that may be written with or without quotes.
type quoted string

// genPieces draws the fields of one job.
func genPieces(t *rapid.T) []piece {
	word := rapid.StringMatching(`[a-z]{3,8}x`)
	out := []piece{{"run", quoted("python3 " + word.Draw(t, "run"))}}
	maybe := func(key string, draw func() any) {
		if rapid.Bool().Draw(t, "has "+key) {
			out = append(out, piece{key, draw()})
		}
	}
	mapping := func(name string) any {
		var m []piece
		for i := range rapid.IntRange(1, 4).Draw(t, name) {
			m = append(m, piece{fmt.Sprintf("k%d", i), quoted(word.Draw(t, name+" value"))})
		}
		return m
	}
	maybe("kind", func() any { return quoted(word.Draw(t, "kind")) })
	maybe("seed", func() any { return strconv.Itoa(rapid.IntRange(-99, 99).Draw(t, "seed")) })
	maybe("replica", func() any { return strconv.Itoa(rapid.IntRange(0, 9).Draw(t, "replica")) })
	maybe("params", func() any { return mapping("params") })
	maybe("requires", func() any { return mapping("requires") })
	maybe("labels", func() any { return mapping("labels") })
	maybe("code", func() any { return quoted("../train") })
	maybe("limits", func() any { return []piece{{"retries", "3"}, {"wall", quoted("3h")}} })
	maybe("priority", func() any { return "4" })
	return out
}

// write renders pieces as YAML in one of many ways that mean the same.
func write(t *rapid.T, b *strings.Builder, ps []piece, indent string, shuffle bool) {
	if shuffle {
		ps = rapid.Permutation(ps).Draw(t, "order")
	}
	for _, p := range ps {
		if shuffle && rapid.Bool().Draw(t, "comment") {
			b.WriteString(indent + "# a comment\n\n")
		}
		if sub, ok := p.val.([]piece); ok {
			if shuffle && rapid.Bool().Draw(t, "flow") {
				b.WriteString(indent + p.key + ": {")
				for i, q := range rapid.Permutation(sub).Draw(t, "flow order") {
					b.WriteString(map[bool]string{true: ", "}[i > 0] + q.key + ": " + scalar(t, q.val, shuffle))
				}
				b.WriteString("}\n")
				continue
			}
			b.WriteString(indent + p.key + ":\n")
			write(t, b, sub, indent+"  ", shuffle)
			continue
		}
		b.WriteString(indent + p.key + ": " + scalar(t, p.val, shuffle))
		if shuffle && rapid.Bool().Draw(t, "trailing") {
			b.WriteString("   # why")
		}
		b.WriteByte('\n')
	}
}

func scalar(t *rapid.T, v any, shuffle bool) string {
	s, ok := v.(quoted)
	if !ok {
		return v.(string)
	}
	if !shuffle {
		return string(s)
	}
	return rapid.SampledFrom([]string{string(s), strconv.Quote(string(s)), "'" + string(s) + "'"}).Draw(t, "style")
}

func loadOne(t interface{ Fatalf(string, ...any) }, text string) Job {
	p, ps := Load(NewMemTree(map[string]string{ConfigFile: refuseConfig, "plans/p.yaml": text, "train/train.py": "x"}))
	for _, q := range ps {
		if q.Severity == Error {
			t.Fatalf("%v\n%s", ps, text)
		}
	}
	return p.Jobs[0]
}

func TestFormattingNeverChangesADigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := genPieces(t)
		var plain, odd strings.Builder
		plain.WriteString("jobs:\n  a:\n")
		write(t, &plain, ps, "    ", false)
		odd.WriteString("# top\njobs:\n\n  a:\n")
		write(t, &odd, ps, "        ", true)
		x, y := loadOne(t, plain.String()), loadOne(t, odd.String())
		if x.Work != y.Work || string(x.PlacementJSON()) != string(y.PlacementJSON()) || string(x.MetadataJSON()) != string(y.MetadataJSON()) {
			t.Fatalf("%s\n%s\n%s\n%s", plain.String(), x.IdentityJSON(), odd.String(), y.IdentityJSON())
		}
	})
}

// edits has, for every field of the table, a text that sets it and one that sets it otherwise.
var edits = map[string][2]string{
	"kind":             {"kind: train", "kind: backtest"},
	"code":             {"code: ../train", "code: ../train2"},
	"run":              {"run: x a", "run: x b"},
	"params":           {"params: {a: 1}", "params: {a: 2}"},
	"seed":             {"seed: 1", "seed: 2"},
	"replica":          {"replica: 0", "replica: 1"},
	"needs":            {"needs: [up]", "needs: [up2]"},
	"requires":         {"requires: {a: x}", "requires: {a: y}"},
	"env":              {"env: {A: x}", "env: {A: y}"},
	"result":           {"result: out", "result: out2"},
	"on":               {"on: [here]", "on: [here, vast]"},
	"gpu.any":          {"on: [vast]\n    gpu: {any: [RTX_4090]}", "on: [vast]\n    gpu: [RTX_3090]"},
	"gpu.count":        {"on: [vast]\n    gpu: {any: [RTX_4090]}", "on: [vast]\n    gpu: {any: [RTX_4090], count: 2}"},
	"gpu.dtype":        {"on: [vast]\n    gpu: {any: [RTX_4090]}", "on: [vast]\n    gpu: {any: [RTX_4090], dtype: fp16}"},
	"work":             {"work: {flops: 1e15}", "work: {flops: 2e15}"},
	"milestones.every": {"milestones: {every: 3 steps}", "milestones: {every: 3m}"},
	"lease.k":          {"lease: {k: 40}", "lease: {k: 41}"},
	"lease.floor":      {"lease: {floor: 40s}", "lease: {floor: 41s}"},
	"watch.path":       {"watch: {path: a, interval: 3m}", "watch: {path: b, interval: 3m}"},
	"watch.interval":   {"watch: {path: a, interval: 3m}", "watch: {path: a, interval: 4m}"},
	"policy":           {"policy: [{log: a, then: stop}]", "policy: [{log: a, then: exclude}]"},
	"exit_codes.retry": {"exit_codes: {retry: [75]}", "exit_codes: {retry: [75, 76]}"},
	"limits.retries":   {"limits: {retries: 1}", "limits: {retries: 2}"},
	"limits.wall":      {"limits: {wall: 1h}", "limits: {wall: 2h}"},
	"limits.paid":      {"limits: {paid: 1 USD}", "limits: {paid: 1 EUR}"},
	"limits.price":     {"limits: {price: 1/h}", "limits: {price: 2/h}"},
	"limits.parallel":  {"limits: {parallel: 1}", "limits: {parallel: 2}"},
	"priority":         {"priority: 1", "priority: 2"},
	"secrets":          {"trust: own\n    secrets: [A]", "trust: own\n    secrets: [B]"},
	"trust":            {"trust: own", "trust: any"},
	"on_delete":        {"on_delete: drain", "on_delete: revoke"},
	"metrics":          {"metrics: {a: higher}", "metrics: {a: lower}"},
	"score.name":       {"score: {name: a, at_least: 1}", "score: {name: b, at_least: 1}"},
	"score.at_least":   {"score: {name: a, at_least: 1}", "score: {name: a, at_least: 0}"},
	"score.at_most":    {"score: {name: a, at_most: 1}", "score: {name: a, at_most: 0}"},
	"labels":           {"labels: {a: x}", "labels: {a: y}"},
	"owner":            {"owner: a", "owner: b"},
	"notes":            {"notes: a", "notes: b"},
	"suspend":          {"suspend: false", "suspend: true"},
}

// TestSorts changes every field of the table: an identity field makes other work, any other leaves the work alone and
// shows in the canonical JSON of its own sort only.
func TestSorts(t *testing.T) {
	for _, f := range Fields() {
		if f.Name == "like" || f.Name == "matrix" { // ways of writing, expanded before identity
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			e, ok := edits[f.Name]
			if !ok {
				t.Fatal("the test has no edit for this field")
			}
			var got [2]Job
			for i, text := range e {
				if !strings.HasPrefix(text, "run:") {
					text = "run: x\n    " + text
				}
				p, ps := Load(NewMemTree(map[string]string{ConfigFile: refuseConfig, "train/x": "1", "train2/x": "2",
					"plans/p.yaml": "jobs:\n  a:\n    " + text + "\n", "plans/up.yaml": "jobs:\n  up: {run: up}\n  up2: {run: up2}\n"}))
				j, found := p.Job("a")
				if !found {
					t.Fatal(ps)
				}
				got[i] = *j
			}
			x, y := &got[0], &got[1]
			for sort, differs := range map[Sort]bool{
				Identity:  x.Work != y.Work,
				Placement: string(x.PlacementJSON()) != string(y.PlacementJSON()),
				Metadata:  string(x.MetadataJSON()) != string(y.MetadataJSON()),
			} {
				if differs != (sort == f.Sort) {
					t.Errorf("%s is %s, but %s differs: %v\n%s\n%s\n%s\n%s", f.Name, f.Sort, sort, differs, x.IdentityJSON(), y.IdentityJSON(), x.PlacementJSON(), y.PlacementJSON())
				}
			}
		})
	}
}

// TestSecretsNeverShow puts something that looks like a key anywhere into a plan and into headway.yaml: it is refused,
// and no message, no frozen name and no diff has it.
func TestSecretsNeverShow(t *testing.T) {
	words := regexp.MustCompile(`[^ \n:,{}\[\]|#]+`)
	keys := []string{"ghp_0123456789abcdefghijABCDEFGHIJ012345", "AKIAIOSFODNN7EXAMPLE", "sk-abcdefghijklmnopqrstuvwx0123", "hf_abcdefghijklmnopqrstuvwxyzABCD"}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom(keys).Draw(t, "key")
		name, text := "plans/p.yaml", everyField
		if rapid.Bool().Draw(t, "in headway.yaml") {
			name, text = ConfigFile, specConfig
		}
		at := rapid.SampledFrom(words.FindAllStringIndex(text, -1)).Draw(t, "word")
		with := rapid.SampledFrom([]string{key, "x-" + key, "'" + key + "'", "&" + key + " x", "*" + key, "!" + key + " x", "${params." + key + "}"}).Draw(t, "form")
		files := map[string]string{ConfigFile: specConfig, "plans/p.yaml": everyField, "train/train.py": "x"}
		files[name] = text[:at[0]] + with + text[at[1]:]
		p, ps := Load(NewMemTree(files))
		d := Diff(p, nil, nil)
		var b strings.Builder
		if err := d.Text(&b, false); err != nil {
			t.Fatal(err)
		}
		all := verdict(p, ps) + b.String() + d.Markdown(0)
		if strings.Contains(all, key) {
			t.Fatalf("%s\n%s", files[name], all)
		}
	})
}
