package preflight

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Bounds of one look.
const (
	lookTime  = 30 * time.Second
	maxOutput = 64 << 10
)

// Of are the checks of a target file. dir is where its commands run.
func Of(t *Target, dir string) []Check {
	var out []Check
	for _, l := range t.Checks {
		k := kinds[l.Kind]
		out = append(out, Check{ID: l.ID, Class: k.class, Cost: k.cost, Run: func(ctx context.Context) []Finding {
			return []Finding{l.within(ctx, dir, t.Name, lookTime)}
		}})
	}
	return out
}

// tooLate is what became of a look that its time ended, in the words of a report.
type tooLate struct{ after time.Duration }

func (e tooLate) Error() string { return fmt.Sprintf("no answer within %s", e.after) }

// within is one look with a deadline. What could not be looked at says what to do about it.
func (l Look) within(ctx context.Context, dir, subject string, d time.Duration) Finding {
	began, late := time.Now(), tooLate{d}
	within, cancel := context.WithTimeoutCause(ctx, d, late)
	defer cancel()
	f := l.look(within, dir)
	if f.Subject = subject; f.Verdict == OK || f.Verdict == Refused {
		return f
	}
	if time.Since(began) >= d && !strings.Contains(f.Found, late.Error()) {
		f.Found = fmt.Sprintf("%s: %s", late, f.Found)
	}
	if f.Fix == "" {
		f.Fix = "look at it by hand: " + l.byHand()
	}
	return f
}

// byHand is where a person looks.
func (l Look) byHand() string {
	switch {
	case l.URL != "":
		return "does " + l.URL + " answer this machine, and in time?"
	case l.Path != "":
		return "does " + l.Path + " exist on this machine?"
	case len(l.Run) > 0:
		return fmt.Sprintf("run %q where this ran", l.Run)
	}
	return fmt.Sprintf("run each of %q where this ran", l.Runs)
}

func (l Look) look(ctx context.Context, dir string) Finding {
	switch l.Kind {
	case "address":
		return l.address(ctx)
	case "clock":
		return l.clock(ctx)
	case "disk":
		return l.disk()
	case "present", "capabilities", "devices":
		return l.inventory(ctx, dir)
	case "absent":
		return l.absent(ctx, dir)
	case "equal":
		return l.equal(ctx, dir)
	case "bound":
		return l.bound(ctx, dir)
	case "versions":
		return l.versions(ctx, dir)
	case "feature":
		return l.feature(ctx, dir)
	}
	return Finding{Verdict: Unknown, Found: fmt.Sprintf("a check of kind %q", l.Kind)}
}

// address: it answers from here, and as itself.
func (l Look) address(ctx context.Context) Finding {
	said, err := l.ask(ctx)
	want := fmt.Sprintf("an answer from %s with %q in it", l.URL, l.Says)
	switch {
	case err != nil && refusedDial(err):
		return Finding{Verdict: Refused, Found: "not reached from here: " + err.Error(), Expected: want, Fix: "is it up, and is this the address that others reach it at?"}
	case err != nil:
		return Finding{Verdict: Unknown, Found: err.Error(), Expected: want}
	case !bytes.Contains(said, []byte(l.Says)):
		return Finding{Verdict: Refused, Found: fmt.Sprintf("something else answers: %s", short(said)), Expected: want, Fix: "another program, or another release of it, has this address"}
	}
	return Finding{Verdict: OK, Found: fmt.Sprintf("%s answers as itself", l.URL)}
}

// refusedDial says that nobody was there, as against a silence, which is unknown.
func refusedDial(err error) bool {
	op, is := errors.AsType[*net.OpError](err)
	_, lookup := errors.AsType[*net.DNSError](err)
	return !isTimeout(err) && (is && op.Op == "dial" || lookup)
}

func isTimeout(err error) bool {
	t, is := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || is && t.Timeout()
}

func (l Look) ask(ctx context.Context) ([]byte, error) {
	u, err := url.Parse(l.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "tcp" {
		_, body, err := get(ctx, l.URL)
		return body, err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if d, ok := ctx.Deadline(); ok {
		if err := c.SetReadDeadline(d); err != nil {
			return nil, err
		}
	}
	line, err := bufio.NewReader(io.LimitReader(c, maxOutput)).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return line, err
}

func get(ctx context.Context, u string) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, nil, err
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // another address is another thing
	res, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOutput))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", res.Status)
	}
	return res, body, err
}

// clock: the server's Date and this machine's clock, as of the middle of the request.
func (l Look) clock(ctx context.Context) Finding {
	began := time.Now()
	res, _, err := get(ctx, l.URL)
	took := time.Since(began)
	want := fmt.Sprintf("its clock within %s of this machine's", l.Within)
	if res == nil {
		return Finding{Verdict: Unknown, Found: err.Error(), Expected: want}
	}
	at, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return Finding{Verdict: Unknown, Found: "it says no date", Expected: want}
	}
	off := began.Add(took / 2).Sub(at.Add(time.Second / 2)) // a date has whole seconds
	if off.Abs() > l.Within+took/2+time.Second/2 {
		return Finding{Verdict: Refused, Found: fmt.Sprintf("the clocks differ by %s", off.Abs().Round(time.Second)), Expected: want, Fix: "set the clock that is wrong"}
	}
	return Finding{Verdict: OK, Found: "the clocks agree"}
}

func (l Look) disk() Finding {
	free, err := room(l.Path)
	want := fmt.Sprintf("%d bytes free at %s", l.Free, l.Path)
	switch {
	case err != nil:
		return Finding{Verdict: Unknown, Found: err.Error(), Expected: want}
	case free < uint64(l.Free):
		return Finding{Verdict: Refused, Found: fmt.Sprintf("%d bytes are free", free), Expected: want, Fix: "free the disk"}
	}
	return Finding{Verdict: OK, Found: fmt.Sprintf("%d bytes free at %s", free, l.Path)}
}

// output runs a program without a shell.
func output(ctx context.Context, dir string, argv []string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out := &first{}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, out, out, time.Second
	err := cmd.Run()
	switch {
	case out.more:
		return "", fmt.Errorf("%s: it prints more than %d bytes", argv[0], maxOutput)
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", argv[0], context.Cause(ctx))
	case err != nil && len(out.b) == 0:
		return "", fmt.Errorf("%s: %w", argv[0], err)
	case err != nil:
		return "", fmt.Errorf("%s: %w: %s", argv[0], err, short(out.b))
	}
	return string(out.b), nil
}

// first keeps the first bytes of an output, and ends the program that prints more.
type first struct {
	b    []byte
	more bool
}

func (f *first) Write(p []byte) (int, error) {
	room := maxOutput - len(f.b)
	f.more = f.more || len(p) > room
	f.b = append(f.b, p[:min(room, len(p))]...)
	if f.more {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// inventory: each name that is needed is one that the program lists: a word of its output, or name for name=value.
func (l Look) inventory(ctx context.Context, dir string) Finding {
	out, err := output(ctx, dir, l.Run)
	want := fmt.Sprintf("%v in the output of %s", l.Needs, l.Run[0])
	if err != nil {
		return Finding{Verdict: Unknown, Found: err.Error(), Expected: want}
	}
	listed := wordsOf(out)
	for _, n := range l.Needs {
		if !lists(listed, n) {
			return Finding{Verdict: Refused, Found: fmt.Sprintf("%q is not in its list: %s", n, short([]byte(strings.Join(listed, " ")))), Expected: want, Fix: "take a name of the list, or install the build that has it"}
		}
	}
	return Finding{Verdict: OK, Found: fmt.Sprintf("all of %v are listed", l.Needs)}
}

// wordsOf takes a program's output apart.
func wordsOf(out string) []string {
	return strings.FieldsFunc(out, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(",;:[]()\"'", r) })
}

func lists(words []string, n string) bool {
	return slices.ContainsFunc(words, func(w string) bool { name, _, _ := strings.Cut(w, "="); return w == n || name == n })
}

// versions: every host's program says the same.
func (l Look) versions(ctx context.Context, dir string) Finding {
	first := ""
	for i, argv := range l.Runs {
		out, err := output(ctx, dir, argv)
		said := strings.TrimSpace(out)
		switch {
		case err != nil:
			return Finding{Verdict: Unknown, Found: err.Error(), Expected: "an answer of every host"}
		case said == "":
			return Finding{Verdict: Unknown, Found: fmt.Sprintf("command %d prints nothing", i+1), Expected: "a version"}
		case i == 0:
			first = said
		case said != first:
			return Finding{Verdict: Refused, Found: fmt.Sprintf("command 1 says %s, command %d says %s", short([]byte(first)), i+1, short([]byte(said))), Expected: "one release on all hosts", Fix: "install one build everywhere"}
		}
	}
	return Finding{Verdict: OK, Found: fmt.Sprintf("%d hosts say %s", len(l.Runs), short([]byte(first)))}
}

// feature: a whole line of the program's output says that it is on.
func (l Look) feature(ctx context.Context, dir string) Finding {
	out, err := output(ctx, dir, l.Run)
	want := fmt.Sprintf("a line %q in the output of %s", l.Says, l.Run[0])
	if err != nil {
		return Finding{Verdict: Unknown, Found: err.Error(), Expected: want}
	}
	for line := range strings.Lines(out) {
		if strings.TrimSpace(line) == l.Says {
			return Finding{Verdict: OK, Found: fmt.Sprintf("it says %q", l.Says)}
		}
	}
	return Finding{Verdict: Refused, Found: "no line says so: " + short([]byte(out)), Expected: want, Fix: "switch it on; what is required is no option"}
}

// short quotes foreign bytes for a message.
func short(b []byte) string {
	const most = 160
	b = bytes.TrimSpace(b)
	if len(b) > most {
		return fmt.Sprintf("%q…", b[:most])
	}
	return fmt.Sprintf("%q", b)
}
