//go:build linux

package round

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-run/headway/proof/history"
	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

var digest = strings.Repeat("ab", 32)

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func lease(t *testing.T, rev int64, state witness.State, holder string) []byte {
	return encoded(t, witness.Record{Protocol: 1, Work: digest, Rev: rev, Write: strings.Repeat("e", 32), Attempt: 1, Dispatch: 1, State: state, Holder: holder, Lease: witness.Lease{Seconds: 15}})
}

// Whoever was gone too early gets the name that belongs to what it wrote, and no other.
func TestSomebodyIsNamedByWhatItWrote(t *testing.T) {
	const agent, watcher = "agent 20.300 of dispatch 1 of abababababab", "watcher 10.200"
	nonce := strings.Repeat("f", 32)
	put := func(actor, key string, body []byte) history.Entry {
		return history.Entry{Actor: actor, Op: history.Put, Key: key, Body: body}
	}
	l := newLedger()
	for _, e := range []history.Entry{
		put(watcher, record.SpecKey(digest), nil),
		put(somebody+"1", record.ClaimKey(digest, 1), encoded(t, record.Claim{Work: digest, Dispatch: 1, Dispatcher: "host/10", Job: "digits-1"})),
		put(somebody+"2", record.ReceiptKey(digest, 1), nil),
		put(agent, record.WitnessKey(digest), lease(t, 1, witness.Held, nonce)),
		put(somebody+"3", record.WitnessKey(digest), lease(t, 2, witness.Held, nonce)),
		put(somebody+"4", record.EndKey(digest, 1), nil),
		put(somebody+"5", record.WitnessKey(digest), lease(t, 3, witness.Yielded, "")),
		put(somebody+"7", record.WitnessKey(digest), lease(t, 4, witness.Revoked, "")),
		put(somebody+"8", record.CodeKey("tree"), nil),
	} {
		l.Take(e)
	}
	var got []string
	entries, count := l.attributed()
	for _, e := range entries {
		got = append(got, e.Actor)
	}
	want := []string{watcher, watcher, watcher, agent, agent, agent, agent, somebody + "7", somebody + "8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Writers{Writes: 9, Named: 5, Unknown: 2}, count); diff != "" || count.Share() != 7.0/9 {
		t.Errorf("share %g, (-want +got):\n%s", count.Share(), diff)
	}
	if diff := cmp.Diff(map[string]string{"digits-1": digest}, l.works()); diff != "" {
		t.Errorf("works (-want +got):\n%s", diff)
	}
	if l.all()[1].Actor != somebody+"1" {
		t.Error("the history itself was changed")
	}
}

// The history of a broken round is a file of JSON lines.
func TestSave(t *testing.T) {
	l := newLedger()
	l.Take(history.Entry{Actor: "a", Op: history.Put, Key: record.WitnessKey(digest), Body: lease(t, 1, witness.Yielded, ""), Cond: bucket.IfAbsent(), Refused: true, Code: bucket.Condition})
	l.Take(history.Entry{Op: history.Note, Text: "SIGKILL: agent"})
	file := filepath.Join(t.TempDir(), "history.jsonl")
	if err := l.save(file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var first line
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || len(lines) != 2 {
		t.Fatalf("%v in\n%s", err, b)
	}
	if first.Cond != "absent" || first.Refused != "Condition" || first.Body == nil || !strings.Contains(lines[1], "SIGKILL") {
		t.Errorf("%s", b)
	}
}
