package main

import (
	"fmt"
	"strings"
)

// bar shows progress: one line that is redrawn on a terminal, a line for each tenth elsewhere.
type bar struct {
	e     env
	label string
	total int64
	tenth int64
	drawn bool
}

func (e env) bar(label string, total int64) *bar {
	return &bar{e: e, label: label, total: max(total, 1), tenth: -1}
}

// at draws step of total; kept is the step of the last milestone, 0 for none.
func (b *bar) at(step, kept int64) {
	step = min(step, b.total)
	note := ""
	if kept > 0 {
		note = fmt.Sprintf("  milestone %d", kept)
	}
	if b.e.tty {
		const width = 40
		done := int(step * width / b.total)
		fmt.Fprintf(b.e.stdout, "\r  %s [%s%s] step %d/%d%s ", b.label, strings.Repeat("#", done), strings.Repeat(".", width-done), step, b.total, note)
		b.drawn = true
		return
	}
	if tenth := step * 10 / b.total; tenth != b.tenth && step > 0 {
		b.tenth = tenth
		fmt.Fprintf(b.e.stdout, "  %s step %d/%d%s\n", b.label, step, b.total, note)
	}
}

func (b *bar) end() {
	if b.drawn {
		fmt.Fprintln(b.e.stdout)
	}
}
