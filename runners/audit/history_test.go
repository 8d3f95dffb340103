package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headway-run/headway/runners/bucket"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/witness"
)

// versions keeps every witness that a bucket took, a line each.
type versions struct {
	bucket.Bucket
	lines [][]byte
}

func (v *versions) Put(ctx context.Context, key string, body bucket.Body, c bucket.Cond) (bucket.Version, error) {
	now, err := v.Bucket.Put(ctx, key, body, c)
	if err == nil && strings.HasPrefix(key, record.WitnessPrefix) {
		b := make([]byte, body.Size())
		_, _ = body.ReadAt(b, 0)
		v.lines = append(v.lines, bytes.Join(bytes.Fields(b), nil))
	}
	return now, err
}

func TestHistory(t *testing.T) {
	kept := &versions{Bucket: onMem(t)}
	b := newBench(t, kept)
	b.history(1, true)
	b.history(2, false)
	sound := kept.lines
	replay := func(lines [][]byte) Versions {
		t.Helper()
		v, err := History(bytes.NewReader(append(bytes.Join(lines, []byte("\n\n")), '\n')))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := replay(sound); v.Finding != nil || v.Versions != len(sound) || v.Works != 2 || len(sound) < 15 {
		t.Fatalf("of %d sound versions: %+v %+v", len(sound), v, v.Finding)
	}
	if v := replay(sound[3:]); v.Finding != nil {
		t.Fatalf("a history that begins later: %+v", v.Finding)
	}
	edited := func(line int, old, now string) [][]byte {
		out := append([][]byte{}, sound...)
		if !bytes.Contains(out[line], []byte(old)) {
			t.Fatalf("line %d has no %s: %s", line, old, out[line])
		}
		out[line] = bytes.Replace(out[line], []byte(old), []byte(now), 1)
		return out
	}
	last := 0 // of the finished work
	for i, l := range sound {
		if bytes.Contains(l, []byte(`"state":"finished"`)) {
			last = i
		}
	}
	insert := append(append(append([][]byte{}, sound[:last+1]...), bytes.Replace(sound[last-1], []byte(`"rev":`), []byte(`"rev":1`), 1)), sound[last+1:]...)
	for name, c := range map[string]struct {
		lines [][]byte
		line  int
		want  Invariant
	}{
		"rev twice":            {edited(2, `"rev":3`, `"rev":2`), 5, Forward},
		"a version left out":   {append(append([][]byte{}, sound[:2]...), sound[3:]...), 5, Forward},
		"pointer by a revoke":  {edited(3, `"milestone":2`, `"milestone":1`), 7, Format},
		"born at attempt 2":    {edited(0, `"attempt":1`, `"attempt":2`), 1, OneWriter},
		"attempt went back":    {edited(4, `"attempt":2`, `"attempt":1`), 9, Forward},
		"no JSON":              {edited(1, `{`, ``), 3, Format},
		"moved after finished": {insert, 2*last + 3, Terminal},
	} {
		v := replay(c.lines)
		if v.Finding == nil || v.Line != c.line || v.Finding.Invariant != c.want || v.Finding.Text == "" || v.Finding.Do == "" {
			t.Errorf("%s: want %s in line %d, got line %d %+v", name, c.want, c.line, v.Line, v.Finding)
		}
	}
	if v, err := History(fails{}); !errors.Is(err, errRead) || v.Finding != nil {
		t.Error("a reader that fails:", v, err)
	}
}

// TestHistoryThatIsNone: what is no object a line is told with its line, with what was found and with what helps.
func TestHistoryThatIsNone(t *testing.T) {
	kept := &versions{Bucket: onMem(t)}
	newBench(t, kept).history(1, false)
	sound := string(kept.lines[0])
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, kept.lines[0], "", "  "); err != nil {
		t.Fatal(err)
	}
	const one = "expected one JSON object a line, found "
	for name, c := range map[string]struct {
		in, want string
		line     int
	}{
		"pretty":                {pretty.String(), one + `"{"`, 1},
		"pretty behind":         {sound + "\n" + pretty.String(), one + `"{"`, 2},
		"a byte order mark":     {"\ufeff" + sound, one + "a byte order mark", 1},
		"an array":              {"[" + sound + "]", one + `"[{\"`, 1},
		"two objects":           {sound + " " + sound, one, 1},
		"half":                  {sound + "\n" + sound[:40], one, 2},
		"a long line":           {sound + "\n\n" + strings.Repeat("x", maxLine+9), one + "more than 16384 bytes", 3},
		"a line without an end": {strings.Repeat(" ", 1<<20), one + "more than 16384 bytes", 1},
		"terminal control":      {"\x1b[31m", one + `"\x1b[31m"`, 1},
		"another object":        {`{"a":1}`, `is no lease: its work is ""`, 1},
		"an object of nobody":   {`{"work":"` + strings.Repeat("x", 500) + `"}`, `is no lease: its work is "xxx`, 1},
		"a key twice":           {`{"work":"a","work":"b"}`, "", 1},
	} {
		v, err := History(strings.NewReader(c.in))
		if err != nil || v.Finding == nil {
			t.Errorf("%s: %v %+v", name, err, v)
			continue
		}
		f := *v.Finding
		if v.Line != c.line || f.Invariant != Format || f.Key != fmt.Sprintf("line %d", c.line) || !strings.HasPrefix(f.Text, c.want) || len(f.Text) > 200 || f.Do == "" {
			t.Errorf("%s: line %d %+v", name, v.Line, f)
		}
		if told := strings.Contains(f.Do, "jq -c"); told != strings.HasPrefix(c.want, one) {
			t.Errorf("%s: %s", name, f.Do)
		}
	}
}

var errRead = errors.New("the disk is gone")

type fails struct{}

func (fails) Read([]byte) (int, error) { return 0, errRead }

// TestBroken: each invariant that a forbidden move can break is named by its own.
func TestBroken(t *testing.T) {
	old := &witness.Record{Rev: 4, Attempt: 2, Dispatch: 2, Floor: 2, Holder: "a", State: witness.Held}
	for want, next := range map[Invariant]witness.Record{
		Claimed:   {Rev: 5, Attempt: 2, Dispatch: 2, Floor: 1, State: witness.Held, Holder: "a"},
		OneHolder: {Rev: 5, Attempt: 2, Dispatch: 2, Floor: 2, State: witness.Held, Holder: "b"},
		OneWriter: {Rev: 5, Attempt: 1, Dispatch: 2, Floor: 2, State: witness.Held, Holder: "a"},
		Forward:   {Rev: 9, Attempt: 2, Dispatch: 2, Floor: 2, State: witness.Held, Holder: "a"},
	} {
		if got := broken(old, &next); got != want {
			t.Errorf("%+v: %s, want %s", next, got, want)
		}
	}
	if got := fmt.Sprint(broken(&witness.Record{State: witness.Finished}, old), broken(nil, old)); got != "I5I1" {
		t.Error(got)
	}
}
