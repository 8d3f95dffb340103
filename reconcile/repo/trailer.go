package repo

import (
	"fmt"
	"strconv"
	"strings"
)

// Trailers is what a commit's message allows. It is read from the last paragraph, as git interpret-trailers does, and
// only when every line there is a trailer. A key that is malformed or stands there twice allows nothing and is a
// problem, since it is about stopping work.
type Trailers struct {
	AllowStops int  // "Allow-Stops: <n>": exactly n live works may stop; -1: not said
	AllowEmpty bool // "Allow-Empty: yes": the plan may be empty
	// AllowReplace is "Allow-Replace: JOB, JOB": jobs or groups whose running work may be replaced; or one exact number.
	AllowReplace []string
	Problems     []string // one sentence each
}

// ParseTrailers reads the trailers of a commit message.
func ParseTrailers(message string) Trailers {
	t := Trailers{AllowStops: -1}
	seen := map[string]bool{}
	for _, line := range trailerBlock(message) {
		key, value, _ := strings.Cut(line, ":")
		key, value = strings.ToLower(key), strings.TrimSpace(value)
		if key != "allow-stops" && key != "allow-empty" && key != "allow-replace" {
			continue
		}
		bad := func(text string) {
			t.Problems = append(t.Problems, text)
		}
		switch {
		case seen[key]:
			bad(fmt.Sprintf("the commit says %s twice: neither counts; say it once", line[:len(key)]))
			switch key {
			case "allow-stops":
				t.AllowStops = -1
			case "allow-empty":
				t.AllowEmpty = false
			default:
				t.AllowReplace = nil
			}
		case key == "allow-stops":
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				bad(fmt.Sprintf("the commit says Allow-Stops: %s: expected the exact number of works that may stop", shorten(value)))
				break
			}
			t.AllowStops = int(n)
		case key == "allow-replace":
			if t.AllowReplace = names(value); t.AllowReplace == nil {
				bad(fmt.Sprintf("the commit says Allow-Replace: %s: expected the names of jobs or groups with commas between them, or the exact number of jobs that may be replaced", shorten(value)))
			}
		case value == "yes":
			t.AllowEmpty = true
		default:
			bad(fmt.Sprintf("the commit says Allow-Empty: %s: expected yes", shorten(value)))
		}
		seen[key] = true
	}
	return t
}

// With is what a merge allows whose own message allows nothing: what the commits that it brings allow, each speaking for itself.
// Numbers add up, names are put together, and whoever names jobs in one commit and a number in another allows no replacement.
func (t Trailers) With(brought []Trailers) Trailers {
	if t.AllowStops >= 0 || t.AllowEmpty || len(t.AllowReplace) > 0 || len(t.Problems) > 0 {
		return t
	}
	number, list := 0, []string(nil)
	for _, b := range brought {
		if b.AllowStops >= 0 {
			t.AllowStops = max(t.AllowStops, 0) + b.AllowStops
		}
		t.AllowEmpty = t.AllowEmpty || b.AllowEmpty
		if n, err := strconv.Atoi(strings.Join(b.AllowReplace, ",")); err == nil && n > 0 {
			number += n
		} else {
			list = append(list, b.AllowReplace...)
		}
		t.Problems = append(t.Problems, b.Problems...)
	}
	switch {
	case number > 0 && len(list) > 0:
		t.Problems = append(t.Problems, "the commits that the merge brings say Allow-Replace with names and with a number: neither counts; say it in the merge's own message")
	case number > 0:
		t.AllowReplace = []string{strconv.Itoa(number)}
	default:
		t.AllowReplace = list
	}
	return t
}

// maxNames bounds what one trailer names.
const maxNames = 1000

// names splits a list at its commas; nil: it is none.
func names(value string) (out []string) {
	for part := range strings.SplitSeq(value, ",") {
		part = strings.TrimSpace(part)
		if part == "" || strings.ContainsAny(part, " \t") || len(out) == maxNames {
			return nil
		}
		out = append(out, part)
	}
	return out
}

// trailerBlock is the lines of the last paragraph if all of them are trailers and the subject is not among them.
func trailerBlock(message string) []string {
	message = strings.TrimRight(strings.ReplaceAll(message, "\r\n", "\n"), " \t\n")
	var lines []string
	all := strings.Split(message, "\n")
	i := len(all)
	for i > 0 && strings.TrimSpace(all[i-1]) != "" {
		i--
	}
	if i == 0 {
		return nil // one paragraph: the subject
	}
	for _, line := range all[i:] {
		if line[0] == ' ' || line[0] == '\t' {
			if len(lines) == 0 {
				return nil
			}
			lines[len(lines)-1] += " " + strings.TrimSpace(line)
			continue
		}
		key, _, found := strings.Cut(line, ":")
		if !found || key == "" || strings.Trim(strings.ToLower(key), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return nil
		}
		lines = append(lines, line)
	}
	return lines
}
