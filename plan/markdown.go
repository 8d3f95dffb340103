package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MarkdownMax is what a comment on the usual forges may hold, less one.
const MarkdownMax = 65_535

// Marker begins the first line of every comment of a plan repository (Config.Name), so that whoever posts comments finds
// the one that is there and edits it. The name is percent-escaped: it cannot end the comment, nor the word.
func Marker(root string) string {
	var b strings.Builder
	for i := range len(root) {
		c := root[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-' && i > 0 && root[i-1] != '-' {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return "<!-- headway:plan root=" + cmp.Or(b.String(), "-") + " "
}

// marker is the first line: whose comment it is, of which commit, and the beginning of the sha256 of [Changes.JSON] without
// its white space.
func (c *Changes) marker() string {
	head := "-"
	if n := len(c.Commit); n >= 12 && strings.Trim(c.Commit, "0123456789abcdef") == "" {
		head = c.Commit[:12]
	}
	sum, h := "-", sha256.New()
	e := json.NewEncoder(h)
	e.SetEscapeHTML(false)
	if err := e.Encode(c); err == nil {
		sum = fmt.Sprintf("sha256:%x", h.Sum(nil)[:8])
	}
	return Marker(c.Root) + "head=" + head + " digest=" + sum + " -->"
}

// Markdown is the diff as a comment of at most max bytes (MarkdownMax when max is 0), and so of no more characters: the
// verdict and what must not be missed, one row per job with the dangerous ones first, and the details folded. It is cut at
// whole jobs, those last that are least dangerous, with a count of what is left out. Everything that came from a file or the
// store is escaped, so that it can neither forge markup nor call people.
func (c *Changes) Markdown(max int) string {
	if max <= 0 {
		max = MarkdownMax
	}
	head, foot := c.markdownHead(max/4), c.markdownFoot()
	own, pending, title, other := &section{list: ranked(c.Changes)}, &section{}, "", ""
	if p := c.Pending; p != nil {
		pending.list = ranked(p.Changes)
		title = "**This commit, beside what is pending**\n\n"
		other = fmt.Sprintf("\n**Already pending on %s (%s): %s**\n\n", escape(line(p.Ref)), escape(line(short(p.Commit))), p.Totals.counts())
	}
	const tail = 800 // room for the lines that count what is left out, and the folds
	room := fill(own, pending, max-len(head)-len(title)-len(other)-len(foot)-tail)
	out := head + title + own.table() + other + pending.table()
	body, used := own.fold("Details", room)
	out += body
	body, _ = pending.fold("Details of what is pending", room-used)
	return out + body + foot
}

// section is one table and its details.
type section struct {
	list []*Change // as they are ranked
	rows []string  // of those that fit
}

// fill gives room to the rows of both, the most dangerous first, until one does not fit; it returns what is left.
func fill(own, pending *section, room int) int {
	const columns = 160 // of a table's first two lines, for each
	room -= 2 * columns
	for {
		next := own
		i, k := len(own.rows), len(pending.rows)
		switch {
		case i == len(own.list) && k == len(pending.list):
			return room
		case i == len(own.list) || k < len(pending.list) && pending.list[k].rank() < own.list[i].rank():
			next = pending
		}
		r := next.list[len(next.rows)].row()
		if room < len(r) {
			return max(room, 0)
		}
		next.rows = append(next.rows, r)
		room -= len(r)
	}
}

func (s *section) table() string {
	if len(s.list) == 0 {
		return ""
	}
	out := "| | job | work | what and why | where, time, cost | now |\n|---|---|---|---|---|---|\n" + strings.Join(s.rows, "")
	if left := len(s.list) - len(s.rows); left > 0 {
		out += fmt.Sprintf("\nand %s more that do not fit here.\n", count(left, "job"))
	}
	return out
}

func (c *Changes) markdownHead(room int) string {
	var b strings.Builder
	b.WriteString(c.marker() + "\n### " + map[Verdict]string{VerdictError: "Error: ", VerdictRefused: "Refused: ", VerdictNothing: "Nothing to do: "}[c.Verdict])
	if c.Pending != nil {
		b.WriteString("Plan over " + escape(line(c.Pending.Ref)) + ": " + c.Totals.counts() + "\n\n")
	} else {
		b.WriteString(strings.TrimPrefix(c.Summary(), map[bool]string{true: "Plan: "}[c.Verdict != VerdictChanges]) + "\n\n")
	}
	list := func(n int, line func(int) string, what string) {
		for i := range n {
			s := "- " + line(i) + "\n"
			if b.Len()+len(s) > room {
				fmt.Fprintf(&b, "- and %s more\n", count(n-i, what))
				break
			}
			b.WriteString(s)
		}
		if n > 0 {
			b.WriteByte('\n')
		}
	}
	alarms := c.alarms()
	list(len(alarms), func(i int) string { return "**" + escape(alarms[i]) + "**" }, "line")
	if c.Totals.Bill.Jobs > 0 {
		b.WriteString(escape(c.Totals.Bill.String()) + "\n\n")
	}
	if len(c.Drift) > 0 {
		b.WriteString("**" + escape(driftTitle) + "**\n\n")
		list(len(c.Drift), func(i int) string { return escape(c.Drift[i].String()) }, "line")
	}
	list(len(c.Problems), func(i int) string { return escape(line(c.Problems[i].String())) }, "problem")
	return b.String()
}

// markdownFoot says what the diff holds for.
func (c *Changes) markdownFoot() string {
	of := "This plan"
	switch {
	case c.Dirty:
		of = "Of the files on disk"
	case c.Commit != "":
		of = "Of commit " + short(c.Commit)
	}
	if c.Alone {
		against := "no other files"
		if c.Base != "" {
			against = "those of " + short(c.Base)
		}
		return "\n" + escape(line(fmt.Sprintf("%s: its files, held against %s. No store was asked: what is in force, runs or is finished is not known.", of, against))) + "\n"
	}
	base := "nothing"
	if c.Base != "" {
		base = short(c.Base)
	}
	return "\n" + escape(line(fmt.Sprintf("%s, with %s in force; store state %s.", of, base, c.State))) + "\n"
}

// row is one job's line of the table.
func (c *Change) row() string {
	now := ""
	switch {
	case c.Leaving != nil:
		now = c.Leaving.describe()
		if c.Leaving.Live() {
			now += c.fate()
		}
	case c.Now != nil:
		now = c.Now.describe()
	}
	return "| " + c.Op.Symbol() + " | " + escape(line(c.Job)) + " | " + escape(strings.TrimSpace(c.works())) + " | " +
		escape(c.headline()) + " | " + escape(c.place()) + " | " + escape(now) + " |\n"
}

// place is where a job that starts or is replaced would run, and what that takes.
func (c *Change) place() string {
	if c.Op != OpCreate && c.Op != OpReplace {
		return ""
	}
	return line(c.at()) + ": " + line(c.price())
}

// fold puts the details of the rows that fit into one folded block, in a fence longer than any run of backticks, and says
// how many bytes that takes.
func (s *section) fold(title string, room int) (string, int) {
	var body strings.Builder
	jobs, left, run := 0, 0, 0
	for _, c := range s.list[:len(s.rows)] {
		d := c.details()
		if len(d) == 0 {
			continue
		}
		if left > 0 {
			left++
			continue
		}
		t := c.Op.Symbol() + " " + printable(c.Job) + "\n    " + strings.Join(d, "\n    ") + "\n"
		longer := max(run, longestRun(t))
		if body.Len()+len(t)+2*longer > room {
			left++
			continue
		}
		run = longer
		body.WriteString(t)
		jobs++
	}
	out := ""
	if jobs > 0 {
		fence := strings.Repeat("`", max(3, run+1))
		out = fmt.Sprintf("\n<details><summary>%s (%s)</summary>\n\n%s\n%s%s\n\n</details>\n", title, count(jobs, "job"), fence, body.String(), fence)
	}
	if left > 0 {
		out += fmt.Sprintf("\n%s of %s are left out.\n", title, count(left, "job"))
	}
	return out, len(out)
}

func longestRun(s string) int {
	most, run := 0, 0
	for i := range len(s) {
		if s[i] != '`' {
			run = 0
			continue
		}
		run++
		most = max(most, run)
	}
	return most
}

// escape makes text inert in Markdown: what could start markup becomes an entity, and what a forge would turn into a
// mention, a reference or a link (which it does after entities are read) is broken by a zero-width space.
func escape(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r < utf8.RuneSelf && !plain(byte(r)) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case strings.ContainsRune("@#!~$%&^[", r): // of GitLab all of them
			fmt.Fprintf(&b, "&#%d;&#8203;", r)
		case r == ':' && strings.HasPrefix(s[i:], "://"), r == '.' && strings.HasSuffix(strings.ToLower(s[:i]), "www"),
			r == '-' && strings.HasSuffix(strings.ToLower(s[:i]), "gh"):
			fmt.Fprintf(&b, "&#8203;&#%d;", r)
		case strings.ContainsRune("<>|`*_]\\\"'{}", r):
			fmt.Fprintf(&b, "&#%d;", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// plain: a character that means nothing to Markdown or a forge, whatever stands beside it.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == ' ' || c == ',' || c == ';' || c == '(' || c == ')' || c == '/' || c == '+'
}
