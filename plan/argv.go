package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// argv splits a job's command into words and fills in what is known: ${params.x}, ${seed}, ${replica}. ${needs.x} stays
// for the worker, and must be one of the job's needs; a whole word ${needs.GROUP} becomes one word per member.
func (l *loader) argv(e *entry, j *Job) {
	pos := e.at("run")
	words, why := splitWords(j.Run)
	if why != "" {
		l.ps.refuse(pos, "BadCommand", "run cannot be split into words: "+why, "quotes in pairs", "")
		return
	}
	if len(words) == 0 {
		return // reported
	}
	out := make([]string, 0, len(words))
	for _, w := range words {
		if !w.quoted && slices.Contains(shellWords, w.text) {
			l.ps.warn(pos, "ShellSyntax", "run has the word "+show(w.text)+", but no shell takes part", "write sh -c '…' if a shell is wanted, or quote the word")
		}
		out = append(out, l.word(e, j, w.text))
	}
	for i, w := range out {
		_, arg, _ := strings.Cut(w, "=")
		if w == ".." || strings.HasPrefix(w, "../") || strings.HasPrefix(arg, "../") || i == 0 && escapes(w) {
			l.ps.refuse(pos, "Escapes", "run has the word "+show(w)+", which leaves the code folder", "paths inside the code folder", "the program is started in a copy of its code folder and has nothing above it")
		}
		if i == 0 && strings.HasPrefix(w, "/") {
			l.ps.refuse(pos, "BadPath", "run starts the absolute path "+show(w), "a program of the code folder or one that the machine finds in its PATH", "")
		}
	}
	j.Argv = out
}

// shellWords are words that somebody meant for a shell. (Table of values.)
var shellWords = []string{"|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"}

func escapes(w string) bool {
	depth := 0
	for _, s := range strings.Split(w, "/") {
		switch s {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// word fills in one word. One that stands for a group of needs is split when the members are known.
func (l *loader) word(e *entry, j *Job, w string) string {
	if !strings.Contains(w, "${") {
		return w
	}
	if name, ok := strings.CutPrefix(w, "${needs."); ok && strings.HasSuffix(name, "}") && strings.Count(w, "${") == 1 {
		name = strings.TrimSuffix(name, "}")
		if g := l.byName[name]; g != nil && len(g.axes) > 0 && e.needsName(name) {
			return w
		}
	}
	return expand(w, func(name string) (string, bool) { return l.variable(e, j, name) })
}

// variable is the text for one ${name}; what is not known is reported and left.
func (l *loader) variable(e *entry, j *Job, name string) (string, bool) {
	switch {
	case name == "seed":
		return strconv.FormatInt(j.Seed, 10), true
	case name == "replica":
		return strconv.FormatInt(j.Replica, 10), true
	}
	if p, ok := strings.CutPrefix(name, "params."); ok {
		if v, ok := j.Params[p]; ok {
			return v, true
		}
	}
	if n, ok := strings.CutPrefix(name, "needs."); ok && e.needsName(n) {
		if g := l.byName[n]; g != nil && len(g.axes) > 0 {
			l.ps.refuse(e.at("run"), "GroupInWord", "${needs."+clip(n)+"} stands for a group inside a word", "the word ${needs."+clip(n)+"} alone, which gives one word per member", "")
		}
		return "${needs." + n + "}", true
	}
	if n, ok := strings.CutPrefix(name, "needs."); ok && l.memberOf(e, n) {
		return "${needs." + n + "}", true
	}
	known := []string{"seed", "replica"}
	for _, p := range slices.Sorted(maps.Keys(j.Params)) {
		known = append(known, "params."+p)
	}
	for _, n := range e.needs {
		known = append(known, "needs."+n.name)
	}
	hint := didYouMean(name, known, "")
	if hint == "" && isVariable(name) {
		hint = fmt.Sprintf("add it to params and write ${params.%s}; for a variable of the environment use sh -c", clip(name))
	}
	l.ps.refuse(e.at("run"), "UnknownVariable", "run has ${"+clip(name)+"}, which stands for nothing", oneOf(known), hint)
	return "", true
}

func (e *entry) needsName(name string) bool {
	return slices.ContainsFunc(e.needs, func(n need) bool { return n.name == name })
}

// memberOf says that a name is that of a member of a group in the needs of e.
func (l *loader) memberOf(e *entry, name string) bool {
	for _, n := range e.needs {
		g := l.byName[n.name]
		if g == nil || len(g.axes) == 0 || !strings.HasPrefix(name, n.name+"-") {
			continue
		}
		if g.members == nil {
			g.members = g.memberNames()
		}
		if g.members[name] {
			return true
		}
	}
	return false
}

// splitGroups turns the words that stand for a group into one word per member.
func (l *loader) splitGroups(j *Job) {
	for i := 0; i < len(j.Argv); i++ {
		name, ok := strings.CutPrefix(j.Argv[i], "${needs.")
		members := l.groups[strings.TrimSuffix(name, "}")]
		if !ok || len(members) == 0 {
			continue
		}
		words := l.groupWords[members[0]]
		if words == nil {
			for _, m := range members {
				words = append(words, "${needs."+l.jobs[m].Name+"}")
			}
			slices.Sort(words)
			l.groupWords[members[0]] = words
		}
		j.Argv = slices.Replace(slices.Clone(j.Argv), i, i+1, words...)
		i += len(words) - 1
	}
}

// cmdWord is one word of a command line.
type cmdWord struct {
	text   string
	quoted bool
}

// splitWords splits at white space. 'single' and "double" quotes keep words together and are taken away; inside double
// quotes \" and \\ stand for the second character. Nothing else is special.
func splitWords(s string) (out []cmdWord, why string) {
	out = make([]cmdWord, 0, 1+strings.Count(s, " "))
	for i := 0; i < len(s); {
		if isBlank(s[i]) {
			i++
			continue
		}
		start := i
		for i < len(s) && !isBlank(s[i]) && s[i] != '\'' && s[i] != '"' {
			i++
		}
		if i == len(s) || isBlank(s[i]) {
			out = append(out, cmdWord{s[start:i], false})
			continue
		}
		word, n := quotedWord(s[start:])
		if n < 0 {
			return nil, "a quote is not closed"
		}
		out = append(out, cmdWord{word, true})
		i = start + n
	}
	return out, ""
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// quotedWord reads the word at the start of s, which has quotes in it, and gives its length there; -1 when a quote is
// not closed.
func quotedWord(s string) (word string, n int) {
	var b strings.Builder
	for n < len(s) && !isBlank(s[n]) {
		c := s[n]
		n++
		if c != '\'' && c != '"' {
			b.WriteByte(c)
			continue
		}
		end := closing(s[n:], c)
		if end < 0 {
			return "", -1
		}
		part := s[n : n+end]
		if c == '"' {
			part = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(part)
		}
		b.WriteString(part)
		n += end + 1
	}
	return b.String(), n
}

// closing finds the end of a quoted part.
func closing(s string, quote byte) int {
	for i := 0; i < len(s); i++ {
		if quote == '"' && s[i] == '\\' && i+1 < len(s) {
			i++
			continue
		}
		if s[i] == quote {
			return i
		}
	}
	return -1
}
