package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// This is the one file that knows the YAML library, and it uses it as a parser only: bytes to nodes, never to Go
// values, because decoding into values truncates 3.7 to 3, reads 010 as 8, follows aliases and merge keys, and can
// panic (git.md §1, house.md §5.0 c). Everything else walks the nodes.

// node is one YAML node. Line and Column start at 1.
type node = yaml.Node

const (
	scalarNode   = yaml.ScalarNode
	sequenceNode = yaml.SequenceNode
	mappingNode  = yaml.MappingNode
	aliasNode    = yaml.AliasNode
)

// isPlain says that a scalar was written without quotes and not as a block.
func isPlain(n *node) bool {
	return n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
}

// isTagged says that a node carries a tag that somebody wrote.
func isTagged(n *node) bool { return n.Style&yaml.TaggedStyle != 0 }

// isNull says that a scalar is empty, ~ or null.
func isNull(n *node) bool {
	if n.Kind != scalarNode || !isPlain(n) {
		return false
	}
	switch n.Value {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// parse turns one file's bytes into its root mapping, or into problems. It allocates in proportion to len(data),
// which the caller has bounded.
func parse(file string, data []byte) (root *node, ps problems) {
	data = ps.checkBytes(file, data)
	if ps.bad() {
		return nil, ps
	}
	defer func() {
		if r := recover(); r != nil { // the parser is archived: a crash of it must not be a crash of ours
			root = nil
			ps.refuse(Pos{File: file}, "Syntax", "the YAML parser failed on this file", "plain YAML", "write it more simply")
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		ps.refuse(Pos{File: file, Line: 1, Col: 1}, "EmptyFile", "the file holds nothing", "a mapping", "write it or delete the file")
		return nil, ps
	case err != nil:
		ps.syntax(file, data)
		return nil, ps
	}
	switch err := d.Decode(&second); {
	case err == nil:
		pos := Pos{File: file, Line: second.Line, Col: second.Column}
		ps.refuse(pos, "SecondDocument", "a second YAML document", "one document per file", "move it into a file of its own")
		return nil, ps
	case !errors.Is(err, io.EOF):
		ps.syntax(file, data)
		return nil, ps
	}
	root = doc.Content[0] // a document node has exactly one child
	c := structure{file: file, ps: &ps}
	c.check(root, "", 1)
	if root.Kind != mappingNode && !ps.bad() {
		ps.refuse(at(file, root), "WrongType", "the file is "+describe(root), "a mapping", "")
	}
	if root.Kind != mappingNode {
		return nil, ps
	}
	return root, ps
}

var errLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`) // table of one value: the form of the library's errors

// parserErrors are messages of the library whose line is one too low, since it counts from 0 there. (Table of values.)
var parserErrors = []string{"did not find expected <", "did not find expected node content", "did not find expected '-'", "did not find expected key",
	"did not find expected ','", "found duplicate %", "found undefined tag handle", "found incompatible YAML"}

// blockErrors are messages whose line is that on which the whole mapping or list began, or none. (Table of values.)
var blockErrors = []string{"did not find expected key", "did not find expected '-'", unknownAnchor}

const unknownAnchor = "unknown anchor '"

// maxSought bounds the files in which the line of such a message is looked for, in bytes: each look parses a part again.
const maxSought = 64 << 10

// failure is what the library says of these bytes, and the line that it names, 0: none; "": it can read them.
func failure(data []byte) (line int, text string) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	for range 2 {
		var doc node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return 0, ""
		}
		if err == nil {
			continue
		}
		if m := errLine.FindStringSubmatch(err.Error()); m != nil {
			line, _ = strconv.Atoi(m[1])
			return line, strings.TrimSpace(m[2])
		}
		return 0, strings.TrimSpace(err.Error())
	}
	return 0, ""
}

// syntax reports what the parser could not read. It gives a line at most; the column is that of the line's first character.
func (ps *problems) syntax(file string, data []byte) {
	begins := func(text string) func(string) bool { return func(p string) bool { return strings.HasPrefix(text, p) } }
	// Of what began on the first line the library names the line on which it ended: with an empty one before it, none is the first.
	line, text := failure(append([]byte{'\n'}, data...))
	if !slices.ContainsFunc(parserErrors, begins(text)) {
		line-- // it counts from 1 here
	}
	data = bytes.TrimRight(data, "\n")
	lines := bytes.SplitAfter(data, []byte("\n"))
	line = max(1, min(line, len(lines)))
	if slices.ContainsFunc(blockErrors, begins(text)) && len(data) <= maxSought {
		ends := make([]int, len(lines)+1)
		for i, l := range lines {
			ends[i+1] = ends[i] + len(l)
		}
		line += sort.Search(len(lines)-line, func(n int) bool { // the first one with which it cannot be read
			_, also := failure(data[:ends[line+n]])
			return also == text
		})
	}
	pos := Pos{File: file, Line: line, Col: 1 + len(lines[line-1]) - len(bytes.TrimLeft(lines[line-1], " "))}
	switch name, alias := strings.CutPrefix(text, unknownAnchor); {
	case looksSecret(text) != "": // an anchor may be named like one
		text = "the parser's message is not shown, since it has a secret in it"
	case alias:
		name, _, _ = strings.Cut(name, "'")
		ps.refuse(pos, "Alias", "alias *"+clip(name), "no aliases", "use `like` to copy a job")
		return
	}
	ps.refuse(pos, "Syntax", "not YAML: "+text, "", "check the indentation, the quotes and the brackets of this line and the one before it")
}

// structure checks what holds for every node, whatever it means.
type structure struct {
	file string
	ps   *problems
	deep bool
	refs int // anchors and aliases
}

// maxRefs bounds how many anchors and aliases of one file are reported: a bomb is made of them.
const maxRefs = 5

func (c *structure) ref(n *node, code, text string) {
	if c.refs++; c.refs > maxRefs {
		return
	}
	hint := "use `like` to copy a job"
	if c.refs == maxRefs {
		hint += "; there may be more of them"
	}
	c.refuse(n, code, text, "no "+strings.ToLower(code)+first(code == "Alias", "es", "s"), hint)
}

// check walks n, the value of key, at a depth.
func (c *structure) check(n *node, key string, depth int) {
	if depth > MaxDepth {
		if !c.deep {
			c.refuse(n, "TooDeep", fmt.Sprintf("more than %d levels of nesting", MaxDepth), "a flatter file", "")
		}
		c.deep = true
		return
	}
	if n.Anchor != "" {
		c.ref(n, "Anchor", "anchor &"+clip(n.Anchor))
	}
	if isTagged(n) {
		c.refuse(n, "Tag", "tag "+clip(n.Tag), "no tags", "quote the value if it must be text")
	}
	switch n.Kind {
	case aliasNode:
		c.ref(n, "Alias", "alias *"+clip(n.Value))
	case scalarNode:
		if isNull(n) && !isTagged(n) {
			c.refuse(n, "Null", strings.TrimPrefix(key+": ", ": ")+"no value", "a value", "write one or leave the key out")
		}
		c.secret(n, n.Value)
	case sequenceNode:
		for _, m := range n.Content {
			c.check(m, key, depth+1)
		}
	case mappingNode:
		c.mapping(n, depth)
	}
}

func (c *structure) mapping(n *node, depth int) {
	var seen map[string]*node
	if len(n.Content) > 16 {
		seen = make(map[string]*node, len(n.Content)/2)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		name := clip(k.Value)
		switch {
		case k.Kind == scalarNode && k.Value == "<<" && isPlain(k):
			c.refuse(k, "MergeKey", "merge key <<", "no merge keys", "use `like` to copy a job")
			continue
		case k.Kind != scalarNode || isNull(k) || isTagged(k) || k.Anchor != "":
			c.refuse(k, "BadKey", "a key that is not plain text", "a name", "")
			continue
		}
		if first := earlier(n, i, k, seen); first != nil {
			c.refuse(k, "DuplicateKey", fmt.Sprintf("%q is already given in line %d", name, first.Line), "each key once", "delete one of the two")
		}
		c.secret(k, k.Value)
		c.check(v, name, depth+1)
	}
}

// earlier finds an equal key before the i-th; seen speeds it up for large mappings.
func earlier(n *node, i int, k *node, seen map[string]*node) *node {
	if seen != nil {
		if f := seen[k.Value]; f != nil {
			return f
		}
		seen[k.Value] = k
		return nil
	}
	for j := 0; j < i; j += 2 {
		if o := n.Content[j]; o.Kind == scalarNode && o.Value == k.Value {
			return o
		}
	}
	return nil
}

func (c *structure) secret(n *node, s string) {
	if what := looksSecret(s); what != "" {
		c.refuse(n, "InlineSecret", "this value looks like "+what, "the name of a secret", "put the name of an environment variable under `secrets` and take the value out of the file and its history")
	}
}

func (c *structure) refuse(n *node, code, text, expected, hint string) {
	c.ps.refuse(at(c.file, n), code, text, expected, hint)
}

func at(file string, n *node) Pos { return Pos{File: file, Line: n.Line, Col: n.Column} }

// describe says what a node is, for "found …".
func describe(n *node) string {
	switch n.Kind {
	case sequenceNode:
		return "a list"
	case mappingNode:
		return "a mapping"
	case aliasNode:
		return "an alias"
	}
	if isNull(n) {
		return "empty"
	}
	return show(n.Value)
}

// show quotes a value for a message: bounded, escaped, and never a secret.
func show(s string) string {
	if looksSecret(s) != "" {
		return "(a value that is not shown)"
	}
	return strconv.Quote(clip(s))
}

// clip bounds text that goes into a message, and hides it when it looks like a secret.
func clip(s string) string {
	const most = 60
	if looksSecret(s) != "" {
		return "(not shown)"
	}
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && s[cut]&0xc0 == 0x80 { // not inside a character
		cut--
	}
	return s[:cut] + "…"
}
