package witness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/headway-run/headway/runners/record"
)

// Bounds on the values of a record, beside its size.
const (
	maxReason = 512        // bytes of a reason at write; a longer one is cut
	maxPhase  = 64         // bytes of a phase's name at write
	maxLease  = 31 * 86400 // seconds: no promise is longer than a month
)

// Unreadable is a witness that exists and cannot be acted on. No automatic path ever writes over it: the work is
// Unknown until a person has looked.
type Unreadable struct {
	Key    string
	Reason string // one sentence part: what is wrong with it
	Newer  int    // the protocol it is written in, when that is above ours; else 0
}

func (e *Unreadable) Error() string {
	hint := "look at the object; headway never writes over it"
	if e.Newer > 0 {
		hint = "use a newer headway for this work"
	}
	return fmt.Sprintf("witness %s: %s (%s)", e.Key, e.Reason, hint)
}

// Decode reads a record and refuses everything that README.md lists: any error is an *Unreadable.
func Decode(work string, b []byte) (Record, error) {
	bad := func(format string, args ...any) (Record, error) {
		return Record{}, &Unreadable{Key: record.WitnessKey(work), Reason: fmt.Sprintf(format, args...)}
	}
	if len(b) > MaxRecord {
		return bad("has %d bytes, at most %d are accepted", len(b), MaxRecord)
	}
	if !utf8.Valid(b) {
		return bad("is not UTF-8")
	}
	var r Record
	err := json.Unmarshal(b, &r)
	if syntax, is := errors.AsType[*json.SyntaxError](err); is {
		return bad("is not JSON: %s", syntax)
	}
	if err := plainKeys(b); err != nil {
		return bad("%s", err)
	}
	newer := r.Protocol
	if err != nil { // a field of another type, as a newer protocol may have
		newer, err = protocolOf(b, err)
	}
	if newer > record.Protocol {
		return Record{}, &Unreadable{Key: record.WitnessKey(work), Newer: newer,
			Reason: fmt.Sprintf("is written in protocol %d, this program knows %d", newer, record.Protocol)}
	}
	if err != nil {
		return bad("is not a record: %s", err)
	}
	if err := r.valid(work); err != nil {
		return bad("%s", err)
	}
	return r, nil
}

// protocolOf reads the version alone of a record that could not be read whole because of cause.
func protocolOf(b []byte, cause error) (int, error) {
	var version struct {
		Protocol int `json:"protocol"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return 0, err
	}
	return version.Protocol, cause
}

// plainKeys refuses what JSON readers understand differently: a key given twice, and a key that another one of
// another case or alphabet could stand for. So every implementation sees the same record. b is valid JSON; it is gone
// through byte by byte, since a reader of tokens costs more than all the rest of a look.
func plainKeys(b []byte) error {
	if start := bytes.TrimLeft(b, " \t\r\n"); len(start) == 0 || start[0] != '{' {
		return fmt.Errorf("is not a JSON object")
	}
	var keySpace [32][]byte
	var levelSpace [8]int
	keys, levels := keySpace[:0], levelSpace[:0] // keys of the objects that are open; where each level's begin, -1 in an array
	next := false                                // a string that comes now is a key
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			levels, next = append(levels, len(keys)), true
		case '[':
			levels, next = append(levels, -1), false
		case '}', ']':
			if first := levels[len(levels)-1]; first >= 0 {
				keys = keys[:first]
			}
			levels, next = levels[:len(levels)-1], false
		case ',':
			next = levels[len(levels)-1] >= 0
		case '"':
			end := stringEnd(b, i)
			if next {
				key, err := plainKey(b[i:end], keys[levels[len(levels)-1]:])
				if err != nil {
					return err
				}
				keys, next = append(keys, key), false
			}
			i = end - 1
		}
	}
	return nil
}

// stringEnd is the index behind the string that begins at b[i]; b is valid JSON.
func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// plainKey checks one key, quoted as it is written, against those before it in its object.
func plainKey(quoted []byte, before [][]byte) ([]byte, error) {
	key := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		var name string
		if err := json.Unmarshal(quoted, &name); err != nil {
			return nil, fmt.Errorf("is not JSON: %w", err)
		}
		key = []byte(name)
	}
	if !plain(key) {
		return nil, fmt.Errorf("has the key %q; keys are made of a-z, 0-9 and _", clip(string(key), 40))
	}
	for _, k := range before {
		if bytes.Equal(k, key) {
			return nil, fmt.Errorf("has the key %q twice", key)
		}
	}
	return key, nil
}

func plain(key []byte) bool {
	for _, c := range key {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return len(key) > 0
}

// encode returns the record's bytes; one that a reader would refuse is a defect of the caller and is not written.
func encode(r Record) ([]byte, error) {
	r.Reason, r.Lease.Phase = clip(r.Reason, maxReason), clip(r.Lease.Phase, maxPhase)
	if err := r.valid(r.Work); err != nil {
		return nil, fmt.Errorf("witness of %s: the record %w", r.Work, err)
	}
	b, err := record.Encode(r)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxRecord {
		return nil, fmt.Errorf("witness of %s: the record would have %d bytes, at most %d are accepted", r.Work, len(b), MaxRecord)
	}
	return b, nil
}

// clip cuts s to at most n bytes without splitting a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// hexDigits reports whether s is n lower-case hex digits.
func hexDigits(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range n {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// valid says what is wrong with a record by itself, as the end of a sentence. The rules are the field table of
// README.md, in its order.
func (r *Record) valid(work string) error {
	switch {
	case r.Protocol != record.Protocol:
		return fmt.Errorf("has protocol %d; this program knows %d", r.Protocol, record.Protocol)
	case !hexDigits(r.Work, 64):
		return fmt.Errorf("has no work of 64 hex digits")
	case r.Work != work:
		return fmt.Errorf("belongs to work %s (copied from another key?)", r.Work)
	case r.Rev < 1:
		return fmt.Errorf("has rev %d; the first is 1", r.Rev)
	case !hexDigits(r.Write, 32):
		return fmt.Errorf("has no write nonce of 32 hex digits")
	case r.Attempt < 0 || r.Dispatch < 0 || r.Floor < 0:
		return fmt.Errorf("has a negative attempt, dispatch or floor")
	case !finite(r.Lease.Seconds, maxLease) || !finite(r.Lease.K, 1e12) || !finite(r.Lease.StepS, maxLease):
		return fmt.Errorf("has a lease out of range")
	case r.Progress.Step < 0 || !finite(r.Progress.Work, 1e40):
		return fmt.Errorf("has a progress out of range")
	}
	if err := r.validState(); err != nil {
		return err
	}
	return r.validPointers()
}

// finite reports whether 0 ≤ x ≤ max; NaN is not.
func finite(x, max float64) bool { return x >= 0 && x <= max }

func (r *Record) validState() error {
	switch r.State {
	case Held:
		switch {
		case !hexDigits(r.Holder, 32):
			return fmt.Errorf("is held by nobody (holder must be 32 hex digits)")
		case r.Attempt < 1 || r.Dispatch < 1:
			return fmt.Errorf("is held with attempt %d and dispatch %d; both start at 1", r.Attempt, r.Dispatch)
		case r.Dispatch < r.Floor:
			return fmt.Errorf("is held by dispatch %d, which is below the floor %d", r.Dispatch, r.Floor)
		case r.Lease.Seconds <= 0:
			return fmt.Errorf("is held without a promised lease")
		}
	case Yielded, Finished:
		if r.Attempt < 1 || r.Dispatch < 1 {
			return fmt.Errorf("is %s with attempt %d and dispatch %d; both start at 1", r.State, r.Attempt, r.Dispatch)
		}
	case Revoked: // attempt 0: stopped or repaired before anybody had captured
	default:
		return fmt.Errorf("has the state %q; known are held, yielded, revoked and finished", clip(string(r.State), 40))
	}
	if r.State != Held && r.Holder != "" {
		return fmt.Errorf("is %s and names a holder", r.State)
	}
	if (r.State == Finished) != (r.Finished != nil) {
		return fmt.Errorf("is %s, which does not go with its finished field", r.State)
	}
	return nil
}

func (r *Record) validPointers() error {
	if p := r.Resume; p != nil {
		switch {
		case p.Attempt < 1 || p.Attempt > r.Attempt:
			return fmt.Errorf("has a resume pointer into attempt %d of %d", p.Attempt, r.Attempt)
		case p.Milestone < 1 || p.Step < 0:
			return fmt.Errorf("has a resume pointer to milestone %d at step %d", p.Milestone, p.Step)
		case p.Manifest != record.MilestoneManifestKey(r.Work, p.Attempt, p.Milestone):
			return fmt.Errorf("has a resume pointer to a key that is not the one of attempt %d, milestone %d", p.Attempt, p.Milestone)
		case !hexDigits(p.SHA256, 64):
			return fmt.Errorf("has a resume pointer without a sha256")
		}
	}
	if f := r.Finished; f != nil {
		switch {
		case f.Attempt != r.Attempt:
			return fmt.Errorf("was finished by attempt %d, but its attempt is %d", f.Attempt, r.Attempt)
		case f.Manifest != record.ResultManifestKey(r.Work, f.Attempt):
			return fmt.Errorf("has a result key that is not the one of attempt %d", f.Attempt)
		case !hexDigits(f.SHA256, 64):
			return fmt.Errorf("has a result without a sha256")
		}
	}
	return nil
}
