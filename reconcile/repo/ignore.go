package repo

import (
	"path"
	"strings"
)

// rule is one line of ignore rules, as gitignore(5) defines them. The library's matcher is not used: it takes "a/**"
// for the folder itself.
type rule struct {
	domain  []string // folder of the file that holds it
	words   []string // pattern between slashes; "**" stands for any number of folders
	name    bool     // no slash in it: matches a name at any depth
	keep    bool     // "!": takes an exclusion back
	folders bool     // trailing slash: matches folders only
}

// parseIgnore reads the lines of one file of ignore rules.
func parseIgnore(b []byte, domain []string) []rule {
	var out []rule
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\r\n")
		for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
			line = line[:len(line)-1]
		}
		if line == "" || line[0] == '#' {
			continue
		}
		r := rule{domain: domain}
		if line[0] == '!' {
			r.keep, line = true, line[1:]
		}
		if line, r.folders = strings.CutSuffix(line, "/"); line == "" {
			continue
		}
		r.name = !strings.Contains(line, "/")
		line = strings.ReplaceAll(strings.TrimPrefix(line, "/"), "[!", "[^")
		r.words = strings.Split(line, "/")
		out = append(out, r)
	}
	return out
}

// ignored reports whether the last rule that matches a path excludes it. The elements of p start at the root of the
// work tree; that a folder above may be excluded is the caller's business.
func ignored(rules []rule, p []string, folder bool) bool {
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].matches(p, folder) {
			return !rules[i].keep
		}
	}
	return false
}

func (r rule) matches(p []string, folder bool) bool {
	if r.folders && !folder || len(p) <= len(r.domain) {
		return false
	}
	for i, d := range r.domain {
		if p[i] != d {
			return false
		}
	}
	if r.name {
		return wordMatches(r.words[0], p[len(p)-1])
	}
	return wordsMatch(r.words, p[len(r.domain):])
}

// wordsMatch matches path elements. A "**" at the end wants at least one element: what is inside, not the folder.
func wordsMatch(words, p []string) bool {
	switch {
	case len(words) == 0:
		return len(p) == 0
	case words[0] == "**" && len(words) == 1:
		return len(p) > 0
	case words[0] == "**":
		return wordsMatch(words[1:], p) || len(p) > 0 && wordsMatch(words, p[1:])
	}
	return len(p) > 0 && wordMatches(words[0], p[0]) && wordsMatch(words[1:], p[1:])
}

func wordMatches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil // a malformed pattern matches nothing, as in git
}
