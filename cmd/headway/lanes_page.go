package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"time"

	"github.com/headway-run/headway/deploylane"
)

const lanesStyle = `body{font:15px/1.4 system-ui,sans-serif;margin:2em;max-width:75em}table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.3em .8em;border-bottom:1px solid #8886;overflow-wrap:anywhere}.wrong{color:#b00020}li{overflow-wrap:anywhere}:root{color-scheme:light dark}`

// lanesPolicy lets the page do nothing: no script, no form, no frame, nothing from elsewhere, and the one style above.
func lanesPolicy() string {
	sum := sha256.Sum256([]byte(lanesStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// sheet is a page that is being written.
type sheet struct{ *bytes.Buffer }

// put writes markup of ours with texts of anybody in it: each is escaped, and stands in an element or between double quotes.
func (s sheet) put(markup string, texts ...any) {
	for i, t := range texts {
		texts[i] = html.EscapeString(fmt.Sprint(t))
	}
	fmt.Fprintf(s, markup, texts...)
}

// drawLanes is the page for people. There is no link in it: no store says where a click goes.
func drawLanes(b *bytes.Buffer, d lanesDoc) error {
	s := sheet{b}
	s.put("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>releases</title>\n")
	fmt.Fprintf(s, "<style>%s</style></head>\n<body><h1>Releases</h1>\n", lanesStyle) // as lanesPolicy has it, byte for byte
	s.put("<p>What the stores of the deploy lanes say. No signature was verified here: <code>headway-lane show MODEL</code> and <code>headway-lane verify FILE</code> do that.</p>\n")
	for _, l := range d.Lanes {
		s.lane(l)
	}
	if d.More > 0 {
		s.put("<p>%s are not shown.</p>\n", count(d.More, "more store"))
	}
	s.put("</body></html>\n")
	return nil
}

func (s sheet) lane(l laneDoc) {
	s.put("<section><h2>%s</h2>\n", l.Store)
	if l.Error != "" {
		s.put("<p class=\"wrong\">%s</p>\n", l.Error)
	}
	if l.Error != "" && len(l.Models) == 0 {
		s.put("</section>\n")
		return
	}
	s.put("<p>Read %s ago.</p>\n", time.Duration(l.AgeS*float64(time.Second)).Round(time.Second))
	for _, why := range l.LeftOut {
		s.put("<p>Not shown: %s.</p>\n", why)
	}
	if len(l.Models) == 0 {
		s.put("<p>Nothing was released, and nothing is under way.</p>\n")
	}
	for _, m := range l.Models {
		s.put("<h3>%s</h3>\n", m.Model)
		if m.Trouble != "" {
			s.put("<p class=\"wrong\">%s</p>\n", m.Trouble)
		}
		s.put("<table><tr><th>version</th><th>state</th><th>stage</th><th>spread</th><th>signer</th><th>why</th></tr>\n")
		for _, r := range m.Releases {
			s.release(r, l.Jobs)
		}
		s.put("</table>\n")
		if len(m.Pointer) > 0 {
			s.put("<p>Pointer, the newest place first:</p><ul>\n")
		}
		for _, p := range m.Pointer {
			s.put("<li>%s: %s by %s %s (record <code title=\"%s\">%s</code>, %s)</li>\n", fmt.Sprint(p.N), p.Version, p.Tag, p.Reason, p.SHA256, brief(p.SHA256), p.Signature)
		}
		if len(m.Pointer) > 0 {
			s.put("</ul>\n")
		}
	}
	s.put("</section>\n")
}

// release is a line of the table, and its lineage below.
func (s sheet) release(r deploylane.Lineage, jobs map[string]string) {
	state := r.State
	if r.Live {
		state = "live"
	}
	if r.Code != "" {
		state += ": " + r.Code
	}
	s.put("<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n", r.Version, state, r.Stage, r.Verdict, r.Signer, r.Text)
	if len(r.Steps) == 0 {
		return
	}
	s.put("<tr><td colspan=\"6\"><details><summary>lineage of %s</summary><ul>\n", r.Version)
	for _, step := range r.Steps {
		s.put("<li><b>%s</b> %s, %s, record <code title=\"%s\">%s</code>, %s<ul>\n", step.Stage, step.Outcome(), step.Written.Format(time.RFC3339), step.SHA256, brief(step.SHA256), step.Signature)
		for _, line := range step.Lines() {
			s.put("<li>%s</li>\n", line)
		}
		if c := step.Candidate; c != nil {
			s.put("<li>%s</li>\n", onBoard(jobs[c.Work]))
		}
		s.put("</ul></li>\n")
	}
	s.put("</ul></details></td></tr>\n")
}

// onBoard says which job of the plan in force the candidate is.
func onBoard(job string) string {
	if job == "" {
		return "the plan that is followed has no job that is this candidate any more"
	}
	return "on the board: job " + clean(job)
}

// brief is a digest for people.
func brief(s string) string { return s[:min(len(s), 12)] }
