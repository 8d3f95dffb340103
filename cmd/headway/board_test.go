package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/bucket/dir"
)

// posted makes a project whose store holds what status reads of a plan of n jobs that run: the record of what is in force, which it
// only lists, and the board that a dispatcher has left.
func posted(tb testing.TB, n int) (root string) {
	tb.Helper()
	root = tb.TempDir()
	conf := "headway: v1\nstore: embedded\nplans: [plans/**/*.yaml]\nplatforms: {here: {runner: local}}\ndefaults: {on: [here]}\n"
	if err := os.WriteFile(filepath.Join(root, plan.ConfigFile), []byte(conf), 0o644); err != nil {
		tb.Fatal(err)
	}
	b, err := dir.Open(filepath.Join(root, ".headway", "store"), dir.Options{Create: true})
	if err != nil {
		tb.Fatal(err)
	}
	put := func(key string, body []byte) bucket.Version {
		v, err := b.Put(tb.Context(), key, bytes.NewReader(body), bucket.IfAbsent())
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
	board := reconcile.Board{Format: 1, Plan: put("accepted/-", []byte("{}")), Commit: "c0ffee"}
	for i := range n {
		sum := sha256.Sum256(fmt.Append(nil, i))
		board.Rows = append(board.Rows, reconcile.BoardRow{Job: fmt.Sprintf("sweep-%05d", i), Version: bucket.Version(hex.EncodeToString(sum[:16])), Changed: time.Now().Unix(),
			Observed: plan.Observed{Work: plan.Digest(hex.EncodeToString(sum[:])), State: plan.StateHeld, Attempt: 1, Dispatch: 1, Platform: "here", Step: int64(i), Steps: 100_000, Milestone: 3, MilestoneStep: 9}})
	}
	body, err := json.Marshal(board)
	if err != nil {
		tb.Fatal(err)
	}
	body = bytes.ReplaceAll(body, []byte(`},{"work"`), []byte("}\n,{\"work\"")) // a line for each row, as a dispatcher writes them
	put("board/-", bytes.Replace(body, []byte(`}],"platforms"`), []byte("}\n],\"platforms\""), 1))
	return root
}

// Documents look as json.Indent makes them, whatever stands in them.
func TestIndented(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", `a "b"`, `\`, "{[:,]}", "é\n<&>"})
	value := rapid.Deferred(func() *rapid.Generator[any] {
		return rapid.OneOf(rapid.Just(any(nil)), rapid.Just(any(true)), rapid.Just(any(map[string]any{})), rapid.Just(any([]any{})), word.AsAny(), rapid.Int().AsAny(),
			rapid.MapOfN(word, word.AsAny(), 0, 3).AsAny(), rapid.SliceOfN(rapid.MapOfN(word, rapid.SliceOfN(word.AsAny(), 0, 2).AsAny(), 0, 2).AsAny(), 0, 3).AsAny())
	})
	rapid.Check(t, func(t *rapid.T) {
		v := value.Draw(t, "value")
		var got, want bytes.Buffer
		if err := printJSON(&got, v); err != nil {
			t.Fatal(err)
		}
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), got.String()); diff != "" {
			t.Errorf("%v (-json.Indent +printed):\n%s", v, diff)
		}
	})
}

// BenchmarkStatus10000 is headway status of ten thousand jobs that run, from the board of a folder, in one process.
func BenchmarkStatus10000(b *testing.B) {
	root := posted(b, 10_000)
	for _, args := range [][]string{{"status", "--json"}, {"status", "--all"}} {
		b.Run(args[1], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var out, said bytes.Buffer
				e := env{args: args, stdout: &out, stderr: &said, dir: root, getenv: func(string) string { return "" }}
				if code := run(b.Context(), e); code != 0 || out.Len() < 10_000*40 {
					b.Fatalf("exit %d, %d bytes: %s", code, out.Len(), said.String())
				}
				_, _ = io.Discard.Write(out.Bytes())
			}
		})
	}
}
