package plan

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rules of the text: what is dangerous comes first; unchanged jobs are only counted; every value that came from a file
// or from the store is bounded and printed without control characters; the last line counts.

// order is how dangerous an operation is. (Table of values.)
var order = map[Op]int{OpRefused: 0, OpRemove: 1, OpReplace: 2, OpCreate: 3, OpUpdate: 4, OpAdopt: 5, OpWaiting: 6, OpUnchanged: 7}

// colors are the ANSI codes of an operation's line. (Table of values.)
var colors = map[Op]string{OpRefused: "31;1", OpRemove: "31", OpReplace: "35", OpCreate: "32", OpUpdate: "33", OpAdopt: "36", OpWaiting: "2"}

// ranked gives the changes that a reader must see, the dangerous ones first.
func (c *Changes) ranked() []*Change {
	var out []*Change
	for i := range c.Changes {
		if ch := &c.Changes[i]; ch.Op != OpUnchanged || len(ch.Warnings) > 0 {
			out = append(out, ch)
		}
	}
	rank := func(c *Change) int {
		if c.stops() && c.Op == OpAdopt {
			return order[OpReplace]
		}
		return order[c.Op]
	}
	slices.SortStableFunc(out, func(a, b *Change) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

// Text writes the diff for people: one block per job that changes, then one line that counts.
func (c *Changes) Text(w io.Writer, color bool) error {
	b := bufio.NewWriter(w)
	if c.Errored {
		fmt.Fprintf(b, "The plan has %s: stops wait until there are none.\n\n", count(c.errors(), "error"))
	}
	width := 0
	ranked := c.ranked()
	for _, ch := range ranked {
		width = max(width, len(ch.Job))
	}
	width = min(width, 40)
	for _, ch := range ranked {
		line := fmt.Sprintf("%s %-*s  %s", ch.Op.Symbol(), width, printable(ch.Job), ch.works())
		if h := ch.headline(); h != "" {
			line += "  " + h
		}
		line = strings.TrimRight(line, " ")
		if code := colors[ch.Op]; color && code != "" {
			line = "\x1b[" + code + "m" + line + "\x1b[0m"
		}
		b.WriteString(line + "\n")
		for _, d := range ch.details() {
			b.WriteString("    " + d + "\n")
		}
	}
	if len(ranked) > 0 {
		b.WriteByte('\n')
	}
	b.WriteString(c.Summary() + "\n")
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}

func (c *Changes) errors() int {
	n := 0
	for _, p := range c.Problems {
		if p.Severity == Error {
			n++
		}
	}
	return n
}

// Summary is the line that counts: "Plan: 2 to start, 1 to replace, 1 to stop, 14 unchanged".
func (c *Changes) Summary() string {
	t := c.Totals
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(t.Start, "to start")
	add(t.Update, "to update in place")
	add(t.Replace, "to replace")
	add(t.Stop, "to stop")
	add(t.Remove, "to let go")
	add(t.Adopt-t.Moved, "found again")
	add(t.Moved, "moved")
	add(t.Refused, "refused")
	add(t.Waiting, "waiting")
	add(t.Unchanged, "unchanged")
	if len(parts) == 0 {
		return "Plan: no jobs"
	}
	return "Plan: " + strings.Join(parts, ", ")
}

// works is the digest, or old → new.
func (c *Change) works() string {
	switch {
	case c.OldWork == "" || c.OldWork == c.NewWork:
		return fmt.Sprintf("%-12s", c.NewWork.Short())
	case c.NewWork == "":
		return fmt.Sprintf("%-12s", c.OldWork.Short())
	}
	return c.OldWork.Short() + " → " + c.NewWork.Short()
}

// headline is what happens, in a few words.
func (c *Change) headline() string {
	verb := map[Op]string{OpCreate: "start", OpUpdate: "update in place", OpReplace: "replace", OpRefused: "refused"}[c.Op]
	if c.Op == OpRemove && !c.stops() {
		verb = "let go"
	}
	out := verb
	if forcing := c.forcing(); c.Op == OpReplace && forcing != "" {
		out += ": " + forcing + " makes other work"
	}
	if c.Reason != "" {
		if out != "" {
			out += ": "
			if strings.Contains(out, "makes other work") {
				out = strings.TrimSuffix(out, ": ") + ", "
			}
		}
		out += line(c.Reason)
	}
	return out
}

// forcing names the identity fields that changed.
func (c *Change) forcing() string {
	var names []string
	for _, f := range c.shown() {
		if f.Sort == Identity {
			names = append(names, f.Field)
		}
	}
	return line(strings.Join(names, ", "))
}

// details are the lines below a job's own.
func (c *Change) details() []string {
	var out []string
	width, fields := 0, c.shown()
	for _, f := range fields {
		width = max(width, min(len(f.Field), 30))
	}
	for _, f := range fields {
		out = append(out, fmt.Sprintf("%-*s  %s → %s  (%s)", width, line(f.Field), orNone(f.Old), orNone(f.New), f.Sort))
	}
	if c.Leaving != nil {
		s := c.OldWork.Short() + " is " + c.Leaving.describe()
		if c.Leaving.Live() {
			s += c.fate()
		}
		out = append(out, s)
	}
	if c.Now != nil {
		w := c.NewWork
		if w == "" {
			w = c.OldWork
		}
		out = append(out, w.Short()+" is "+c.Now.describe())
	}
	if c.Op == OpCreate || c.Op == OpReplace {
		s := "on " + strings.Join(c.On, ", then ")
		if c.FLOPs > 0 {
			s += "; " + strconv.FormatFloat(c.FLOPs, 'g', 3, 64) + " FLOP, "
			if c.Estimate != nil {
				s += c.Estimate.String()
			} else {
				s += "time unknown"
			}
		}
		out = append(out, line(s))
	}
	if c.Next != "" {
		out = append(out, "next: "+line(c.Next))
	}
	for _, w := range c.Warnings {
		out = append(out, "warning: "+line(w))
	}
	return out
}

// fate says how leaving work ends and what it loses.
func (c *Change) fate() string {
	s := ""
	switch c.OnDelete {
	case Drain:
		s = "; drain: it stops after its next milestone"
	case Revoke:
		s = "; revoke: it stops now"
	case Orphan:
		return "; orphan: it may finish"
	}
	if c.Lost > 0 {
		s += fmt.Sprintf(", and would lose %s GPU-hours since its last one", strconv.FormatFloat(c.Lost, 'f', 2, 64))
	}
	return s
}

// describe says what is known of a work.
func (o *Observed) describe() string {
	s := line(o.State)
	if o.Platform != "" {
		s += " on " + line(o.Platform)
	}
	if o.Attempt > 0 {
		s += fmt.Sprintf(", attempt %d", o.Attempt)
	}
	if o.Step > 0 {
		s += ", step " + thousands(o.Step)
		if o.Steps > 0 {
			s += " of " + thousands(o.Steps)
		}
	}
	if o.Milestone > 0 {
		s += fmt.Sprintf(", milestone %d at step %s", o.Milestone, thousands(o.MilestoneStep))
	}
	if o.Age > 0 {
		s += ", seen to change " + formatDuration(o.Age.Round(time.Second)) + " ago"
	}
	if o.Reason != "" {
		s += " (" + line(o.Reason) + ")"
	}
	return s
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// line bounds foreign text to one printable line without secrets.
func line(s string) string {
	const most = 300
	s = redact(s)
	if len(s) > most {
		cut := most
		for cut > 0 && s[cut]&0xc0 == 0x80 { // not inside a character
			cut--
		}
		s = s[:cut] + "…"
	}
	return printable(s)
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return line(s)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
