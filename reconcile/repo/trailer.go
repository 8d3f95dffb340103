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
	AllowStops int      // "Allow-Stops: <n>": exactly n live works may stop; -1: not said
	AllowEmpty bool     // "Allow-Empty: yes": the plan may be empty
	Problems   []string // one sentence each
}

// ParseTrailers reads the trailers of a commit message.
func ParseTrailers(message string) Trailers {
	t := Trailers{AllowStops: -1}
	seen := map[string]bool{}
	for _, line := range trailerBlock(message) {
		key, value, _ := strings.Cut(line, ":")
		key, value = strings.ToLower(key), strings.TrimSpace(value)
		if key != "allow-stops" && key != "allow-empty" {
			continue
		}
		bad := func(text string) {
			t.Problems = append(t.Problems, text)
		}
		switch {
		case seen[key]:
			bad(fmt.Sprintf("the commit says %s twice: neither counts; say it once", line[:len(key)]))
			if key == "allow-stops" {
				t.AllowStops = -1
			} else {
				t.AllowEmpty = false
			}
		case key == "allow-stops":
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				bad(fmt.Sprintf("the commit says Allow-Stops: %s: expected the exact number of works that may stop", shorten(value)))
				break
			}
			t.AllowStops = int(n)
		case value == "yes":
			t.AllowEmpty = true
		default:
			bad(fmt.Sprintf("the commit says Allow-Empty: %s: expected yes", shorten(value)))
		}
		seen[key] = true
	}
	return t
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
