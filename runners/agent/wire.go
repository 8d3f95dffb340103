package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// Bounds of the socket protocol (PROTOCOL.md).
const (
	protocolVersion = 1
	maxLine         = 64 << 10
	maxStep         = 1 << 53
	maxExpect       = 86400.0 // seconds of a declared phase
	maxNotes        = 64
	maxErrorText    = 16 << 10
)

// request is one line from a program, checked.
type request struct {
	Op       string         `json:"op"`
	Protocol int            `json:"protocol"`
	Client   string         `json:"client"`
	PID      int64          `json:"pid"`
	N        *int64         `json:"n"`
	Ask      bool           `json:"ask"`
	Step     int64          `json:"step"`
	Path     string         `json:"path"`
	Move     bool           `json:"move"`
	Values   map[string]any `json:"values"`
	Name     string         `json:"name"`
	ExpectS  float64        `json:"expect_s"`
	Text     string         `json:"text"`
	WaitS    float64        `json:"wait_s"`
	SaveS    float64        `json:"save_s"`
	AgoS     float64        `json:"ago_s"`
}

// outlay is what a step says of the seconds since the last line.
func (r *request) outlay() outlay {
	return outlay{wait: bounded(r.WaitS), save: bounded(r.SaveS), ago: bounded(r.AgoS)}
}

func bounded(s float64) time.Duration {
	return time.Duration(min(max(s, 0), maxExpect) * float64(time.Second))
}

// wholeLines cuts a stream into lines without their newlines; what follows the last newline is none.
func wholeLines(b []byte, _ bool) (advance int, line []byte, err error) {
	if n := bytes.IndexByte(b, '\n'); n >= 0 {
		return n + 1, b[:n], nil
	}
	return 0, nil, nil
}

// oneWay reports whether an op never has an answer.
func (r *request) oneWay() bool {
	return r.Op == "note" || r.Op == "error" || r.Op == "step" && !r.Ask
}

// refusal is an answer with ok false.
type refusal struct {
	Code string // one of PROTOCOL.md
	Text string
	Hang bool // the connection ends after it
}

func (r *refusal) Error() string { return r.Code + ": " + r.Text }

func badRequest(format string, args ...any) *refusal {
	return &refusal{Code: "bad_request", Text: fmt.Sprintf(format, args...)}
}

// parseLine reads one line without its newline. A *refusal says what is wrong with it; r.Op is set even then where it
// could be read, so that a one-way line is never answered.
func parseLine(line []byte) (r request, err error) {
	if n, ok := plainStep(line); ok {
		return request{Op: "step", N: &n}, nil
	}
	if len(line) > maxLine {
		return r, &refusal{Code: "bad_request", Text: fmt.Sprintf("a line of more than %d bytes", maxLine), Hang: true}
	}
	if trimmed := bytes.TrimLeft(line, " \t\r"); len(trimmed) == 0 || trimmed[0] != '{' {
		return r, &refusal{Code: "bad_request", Text: "a line that is no JSON object", Hang: true}
	}
	if err := json.Unmarshal(line, &r); err != nil {
		op := request{Op: r.Op, Ask: r.Ask}
		_, isSyntax := err.(*json.SyntaxError)
		return op, &refusal{Code: "bad_request", Text: "not understood: " + err.Error(), Hang: isSyntax}
	}
	return r, r.check()
}

// plainStep reads the line that comes a thousand times a second, {"op":"step","n":123}, without a JSON decoder.
func plainStep(line []byte) (int64, bool) {
	digits, ok := bytes.CutPrefix(line, []byte(`{"op":"step","n":`))
	if !ok || len(digits) < 2 || len(digits) > 17 || digits[len(digits)-1] != '}' {
		return 0, false
	}
	digits = digits[:len(digits)-1]
	if digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n <= maxStep
}

func (r *request) check() error {
	switch r.Op {
	case "hello":
		if r.Protocol != protocolVersion {
			return &refusal{Code: "protocol", Text: fmt.Sprintf("protocol %d, this agent speaks %d", r.Protocol, protocolVersion), Hang: true}
		}
	case "step":
		if r.N == nil || *r.N < 0 || *r.N > maxStep {
			return badRequest("a step needs n, the steps finished so far, 0 to 2^53")
		}
	case "milestone":
		if r.Step < 0 || r.Step > maxStep {
			return badRequest("milestone at step %d is out of range", r.Step)
		}
		if r.Path == "" || len(r.Path) > 4096 {
			return badRequest("a milestone needs the path of a finished file or folder")
		}
	case "phase":
		if r.Name == "" {
			return badRequest("a phase needs a name")
		}
		if !(r.ExpectS >= 0 && r.ExpectS <= maxExpect) {
			return badRequest("expect_s %g: expected 0 to %g seconds", r.ExpectS, maxExpect)
		}
	case "resume", "note", "phase_end", "error", "drain":
	default:
		return badRequest("unknown op %.40q", r.Op)
	}
	return nil
}

// answer is every answer that is ok, and a refusal. Fields that an op does not have are left out.
type answer struct {
	OK         bool     `json:"ok"`
	Error      string   `json:"error,omitempty"`
	Text       string   `json:"text,omitempty"`
	Protocol   int      `json:"protocol,omitempty"`
	Work       string   `json:"work,omitempty"`
	Attempt    int64    `json:"attempt,omitempty"`
	EverySteps *int64   `json:"every_steps,omitempty"`
	EveryS     *float64 `json:"every_s,omitempty"`
	QuietS     *float64 `json:"quiet_s,omitempty"`
	Milestone  *int64   `json:"milestone,omitempty"`
}

// stepAnswer and resumeAnswer have fields that are null on purpose.
type stepAnswer struct {
	OK     bool    `json:"ok"`
	QuietS float64 `json:"quiet_s"`
	Due    bool    `json:"due"`
	Stop   *string `json:"stop"`
}

type resumeAnswer struct {
	OK        bool    `json:"ok"`
	Path      *string `json:"path"`
	Step      int64   `json:"step"`
	Milestone int64   `json:"milestone"`
}

const pushAsk = `{"push":"ask"}` + "\n"

// writeLine writes one answer.
func writeLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// noteText renders bounded metrics for the events, names in no particular order of meaning but sorted by JSON.
func noteText(values map[string]any, mask func(string) string) string {
	kept := map[string]any{}
	for k, v := range values {
		k = mask(k)
		if len(kept) == maxNotes || len(k) > 128 {
			continue
		}
		switch x := v.(type) {
		case float64:
			if !math.IsNaN(x) && !math.IsInf(x, 0) {
				kept[k] = x
			}
		case string:
			x = mask(x)
			kept[k] = x[:min(len(x), 1024)]
		case bool:
			kept[k] = strconv.FormatBool(x)
		}
	}
	b, err := json.Marshal(kept)
	if err != nil || len(kept) == 0 {
		return ""
	}
	return string(b)
}
