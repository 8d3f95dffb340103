package main

import (
	"fmt"
	"html"
	"strings"
)

// palette is the colours of a terminal picture.
type palette struct{ back, frame, text, dim, bold, green, red, yellow string }

// palettes are the two pictures that one text becomes: a table of values.
var palettes = map[string]palette{
	"light": {back: "#ffffff", frame: "#d0d7de", text: "#1f2328", dim: "#6e7781", bold: "#000000", green: "#1a7f37", red: "#cf222e", yellow: "#9a6700"},
	"dark":  {back: "#0d1117", frame: "#30363d", text: "#e6edf3", dim: "#8b949e", bold: "#ffffff", green: "#3fb950", red: "#f85149", yellow: "#d29922"},
}

const (
	svgChar   = 7.8 // width of a character at 13 px, as most fixed fonts have it (0.6 em)
	svgLine   = 19
	svgMargin = 16
	svgBar    = 30
)

// svg draws terminal text with its ANSI colours as one picture, without scripts, fonts or anything from elsewhere.
// Every run of equal style is set at the column where a terminal would have it, and stretched to its width in columns,
// so that tables stay aligned whatever font the reader has.
func svg(text, title string, p palette) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	columns := 0
	for _, l := range lines {
		columns = max(columns, len([]rune(withoutANSI(l))))
	}
	width, height := int(float64(columns)*svgChar)+2*svgMargin, len(lines)*svgLine+svgBar+svgMargin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n", width, height, width, height, html.EscapeString(title))
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(title))
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="%s" stroke="%s"/>`+"\n", width-1, height-1, p.back, p.frame)
	for i := range 3 {
		fmt.Fprintf(&b, `<circle cx="%d" cy="15" r="4.5" fill="%s"/>`+"\n", svgMargin+5+i*16, p.frame)
	}
	b.WriteString(`<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="13" xml:space="preserve">` + "\n")
	for row, l := range lines {
		column := 0
		for _, s := range spans(l) {
			n := len([]rune(s.text))
			lead := n - len([]rune(strings.TrimLeft(s.text, " ")))
			body := strings.TrimSpace(s.text)
			if m := len([]rune(body)); m > 0 {
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" textLength="%.1f" lengthAdjust="spacingAndGlyphs" fill="%s"%s>%s</text>`+"\n",
					svgMargin+float64(column+lead)*svgChar, svgBar+row*svgLine+14, float64(m)*svgChar, p.color(s.style), weight(s.style), html.EscapeString(body))
			}
			column += n
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

type span struct{ style, text string }

// spans splits a line at its SGR sequences (ESC [ … m) and at runs of two or more blanks, which are columns of a table.
func spans(line string) (out []span) {
	style := ""
	add := func(s string) {
		for s != "" {
			end := len(s)
			if body := strings.TrimLeft(s, " "); body != "" {
				if i := strings.Index(body, "  "); i >= 0 {
					end = len(s) - len(body) + i
				}
			}
			out = append(out, span{style, s[:end]})
			s = s[end:]
		}
	}
	for {
		text, rest, found := strings.Cut(line, "\x1b[")
		add(text)
		if !found {
			return out
		}
		code, after, _ := strings.Cut(rest, "m")
		style, line = code, after
	}
}

func withoutANSI(line string) string {
	var b strings.Builder
	for _, s := range spans(line) {
		b.WriteString(s.text)
	}
	return b.String()
}

func (p palette) color(style string) string {
	switch style {
	case "1":
		return p.bold
	case "2":
		return p.dim
	case "31":
		return p.red
	case "32":
		return p.green
	case "33":
		return p.yellow
	}
	return p.text
}

func weight(style string) string {
	if style == "1" {
		return ` font-weight="bold"`
	}
	return ""
}
