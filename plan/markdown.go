package plan

import (
	"fmt"
	"strings"
)

// MarkdownMax is what a comment on the usual forges may hold, less one.
const MarkdownMax = 65_535

// markdownMarker opens every comment, so that the next run finds its own and edits it.
const markdownMarker = "<!-- headway:plan -->"

// Markdown is the diff as a comment of at most max bytes (MarkdownMax when max is 0): the counts, one row per job with
// the dangerous ones first, and the details folded. It is cut at whole jobs, with a count of what is left out.
// Everything that came from a file or the store is escaped, so that it can neither forge markup nor call people.
func (c *Changes) Markdown(max int) string {
	if max <= 0 {
		max = MarkdownMax
	}
	ranked := c.ranked()
	head := c.markdownHead(max / 4)
	table := "| | job | work | what and why | now |\n|---|---|---|---|---|\n"
	if len(ranked) == 0 {
		return head
	}
	const tail = 300 // room for the two lines that count what is left out, and the fold
	room := max - len(head) - len(table) - tail
	var rows strings.Builder
	shown := 0
	for _, ch := range ranked {
		r := ch.row()
		if rows.Len()+len(r) > room {
			break
		}
		rows.WriteString(r)
		shown++
	}
	out := head + table + rows.String()
	if left := len(ranked) - shown; left > 0 {
		out += fmt.Sprintf("\nand %s more that do not fit here.\n", count(left, "job"))
	}
	return out + fold(ranked[:shown], room-rows.Len())
}

func (c *Changes) markdownHead(room int) string {
	var b strings.Builder
	b.WriteString(markdownMarker + "\n### " + c.Summary() + "\n\n")
	if c.Errored {
		fmt.Fprintf(&b, "**The plan has %s: stops wait until there are none.**\n\n", count(c.errors(), "error"))
	}
	for i, p := range c.Problems {
		s := "- " + escape(line(p.String())) + "\n"
		if b.Len()+len(s) > room {
			fmt.Fprintf(&b, "- and %s more\n", count(len(c.Problems)-i, "problem"))
			break
		}
		b.WriteString(s)
	}
	if len(c.Problems) > 0 {
		b.WriteByte('\n')
	}
	return b.String()
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
	return "| " + c.Op.Symbol() + " | " + escape(c.Job) + " | " + escape(strings.TrimSpace(c.works())) + " | " +
		escape(c.headline()) + " | " + escape(now) + " |\n"
}

// fold puts the details of the jobs that fit into one folded block, in a fence longer than any run of backticks.
func fold(list []*Change, room int) string {
	var body strings.Builder
	jobs, left, run := 0, 0, 0
	for _, c := range list {
		d := c.details()
		if len(d) == 0 {
			continue
		}
		s := c.Op.Symbol() + " " + printable(c.Job) + "\n    " + strings.Join(d, "\n    ") + "\n"
		run = max(run, longestRun(s))
		if left > 0 || body.Len()+len(s)+2*run > room {
			left++
			continue
		}
		body.WriteString(s)
		jobs++
	}
	out := ""
	if jobs > 0 {
		fence := strings.Repeat("`", max(3, longestRun(body.String())+1))
		out = fmt.Sprintf("\n<details><summary>Details (%s)</summary>\n\n%s\n%s%s\n\n</details>\n", count(jobs, "job"), fence, body.String(), fence)
	}
	if left > 0 {
		out += fmt.Sprintf("\nDetails of %s are left out.\n", count(left, "job"))
	}
	return out
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
// mention, a reference or a link is broken by a zero-width space.
func escape(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '@' || r == '#':
			fmt.Fprintf(&b, "&#%d;&#8203;", r)
		case r == ':' && strings.HasPrefix(s[i:], "://"), r == '.' && strings.HasSuffix(strings.ToLower(s[:i]), "www"):
			fmt.Fprintf(&b, "&#8203;&#%d;", r)
		case strings.ContainsRune("<>&|`*_[]\\!~^$\"'{}", r):
			fmt.Fprintf(&b, "&#%d;", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
