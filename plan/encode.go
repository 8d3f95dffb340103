package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Canonical JSON: keys in byte order, no white space, text in UTF-8 with only the escapes that JSON demands, numbers
// in decimal. It is written by hand, because the bytes are what a work is named by and must never change.

// canonical is the canonical JSON of one job's fields by sort.
type canonical struct{ identity, placement, metadata []byte }

func (p *Plan) canonical(i int) canonical {
	if i < len(p.canon) {
		return p.canon[i]
	}
	j := &p.Jobs[i]
	return canonical{j.IdentityJSON(), j.PlacementJSON(), j.MetadataJSON()}
}

func digestOf(identity []byte) Digest {
	s := sha256.Sum256(identity)
	return Digest(hex.EncodeToString(s[:]))
}

// IdentityFormat is the version of the canonical identity, and part of it.
const IdentityFormat = 1

// Digest is the work digest: the sha256 of IdentityJSON in hex. Inputs must carry their own digests.
func (j *Job) Digest() Digest { return digestOf(j.IdentityJSON()) }

// IdentityJSON is the canonical JSON of the identity fields. A field that is not set is left out, so that a field
// added later changes no digest. Inputs are the sorted digests of the works that are read; ${needs.NAME} in the words
// of the command stands as ${needs:DIGEST}, so that renaming an upstream job changes nothing.
func (j *Job) IdentityJSON() []byte { return j.object(identityParts) }

// PlacementJSON is the canonical JSON of the placement fields that are set, under their paths ("limits.wall").
func (j *Job) PlacementJSON() []byte { return j.object(placementParts) }

// MetadataJSON is the canonical JSON of the metadata fields that are set.
func (j *Job) MetadataJSON() []byte { return j.object(metadataParts) }

// part is one key of a canonical object.
type part struct {
	key string
	put func(b []byte, j *Job) []byte
}

// The keys of the three canonical objects, sorted. (Tables of values.)
var (
	identityParts = partsOf(Identity,
		part{"deploy", func(b []byte, j *Job) []byte { return putBool(b, j.Deploy) }},
		part{"generation", func(b []byte, j *Job) []byte { return putInt(b, max(1, j.Generation)) }},
		part{"headway", func(b []byte, _ *Job) []byte { return putInt(b, IdentityFormat) }},
		part{"parent", func(b []byte, j *Job) []byte { return putText(b, string(j.Parent)) }})
	placementParts = partsOf(Placement)
	metadataParts  = partsOf(Metadata)
)

func partsOf(sort Sort, more ...part) []part {
	for _, l := range leaves {
		if l.Sort == sort && l.put != nil {
			more = append(more, part{l.Name, l.put})
		}
	}
	slices.SortFunc(more, func(a, b part) int { return strings.Compare(a.key, b.key) })
	return more
}

func (j *Job) object(parts []part) []byte { return j.appendObject(make([]byte, 0, 256), parts) }

// appendObject appends to an empty b.
func (j *Job) appendObject(b []byte, parts []part) []byte {
	b = append(b, '{')
	for _, p := range parts {
		start := len(b)
		if start > 1 {
			b = append(b, ',')
		}
		b = append(appendString(b, p.key), ':')
		key := len(b)
		if b = p.put(b, j); len(b) == key { // not set
			b = b[:start]
		}
	}
	return append(b, '}')
}

// shortEscapes are the control characters that JSON writes with one letter. (Table of values.)
var shortEscapes = [' ']byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r'}

const hexDigits = "0123456789abcdef"

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	plain := true
	for i := range len(s) {
		plain = plain && s[i] >= ' ' && s[i] < 0x80 && s[i] != '"' && s[i] != '\\'
	}
	if plain {
		return append(append(b, s...), '"')
	}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' && shortEscapes[r] != 0:
			b = append(b, '\\', shortEscapes[r])
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

func appendFloat(b []byte, v float64) []byte { return strconv.AppendFloat(b, v, 'g', -1, 64) }

func putText(b []byte, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(b, s)
}

func putInt[T int | int64](b []byte, v T) []byte {
	if v == 0 {
		return b
	}
	return strconv.AppendInt(b, int64(v), 10)
}

func putFloat(b []byte, v float64) []byte {
	if v == 0 {
		return b
	}
	return appendFloat(b, v)
}

func putBool(b []byte, v bool) []byte {
	if !v {
		return b
	}
	return append(b, "true"...)
}

func putDuration(b []byte, v time.Duration) []byte {
	if v == 0 {
		return b
	}
	return appendString(b, formatDuration(v))
}

// formatDuration writes a duration as plan files do: 1d12h, 90s.
func formatDuration(v time.Duration) string {
	var b []byte
	for _, u := range durationUnits {
		if n := v / u.unit; n > 0 {
			b = append(strconv.AppendInt(b, int64(n), 10), u.name...)
			v -= n * u.unit
		}
	}
	if len(b) == 0 {
		return "0s"
	}
	return string(b)
}

func putEvery(b []byte, v Milestones) []byte {
	if v.Steps > 0 {
		return appendString(b, strconv.FormatInt(v.Steps, 10)+" steps")
	}
	return putDuration(b, v.Every)
}

func putMoney(b []byte, v Money) []byte {
	if v == (Money{}) {
		return b
	}
	return appendString(b, strings.TrimSpace(strconv.FormatFloat(v.Amount, 'g', -1, 64)+" "+v.Unit))
}

func putList(b []byte, v []string) []byte {
	if len(v) == 0 {
		return b
	}
	b = append(b, '[')
	for i, s := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}

func putMap(b []byte, v map[string]string) []byte {
	if len(v) == 0 {
		return b
	}
	b = append(b, '{')
	var few [8]string
	keys := slices.AppendSeq(few[:0], maps.Keys(v))
	slices.Sort(keys)
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		b = appendString(b, v[k])
	}
	return append(b, '}')
}

func putWork(b []byte, j *Job) []byte {
	w := j.FLOPs
	if w.Total == 0 && w.PerStep == 0 && w.Steps == 0 {
		return b
	}
	b = append(b, '{')
	if w.PerStep != 0 {
		b = append(appendFloat(append(b, `"per_step":`...), w.PerStep), ',')
	}
	if w.Steps != 0 {
		b = append(strconv.AppendInt(append(b, `"steps":`...), w.Steps, 10), ',')
	}
	if w.Total != 0 {
		b = append(appendFloat(append(b, `"total":`...), w.Total), ',')
	}
	b[len(b)-1] = '}'
	return b
}

// putInputs writes the digests that are read, sorted, each once: neither names nor order matter.
func putInputs(b []byte, j *Job) []byte {
	if len(j.Inputs) == 0 {
		return b
	}
	works := make([]string, len(j.Inputs))
	for i, in := range j.Inputs {
		works[i] = string(in.Work)
	}
	slices.Sort(works)
	return putList(b, slices.Compact(works))
}

// putRun writes the words of the command with ${needs.NAME} turned into ${needs:DIGEST}.
func putRun(b []byte, j *Job) []byte {
	words := j.Argv
	if len(j.Inputs) > 0 {
		words = slices.Clone(words)
		find := inputFinder(j.Inputs)
		for i, w := range words {
			words[i] = expand(w, func(name string) (string, bool) {
				job, is := strings.CutPrefix(name, "needs.")
				if !is {
					return "", false
				}
				work, ok := find(job)
				return "${needs:" + string(work) + "}", ok
			})
		}
	}
	return putList(b, words)
}

// inputFinder finds an input's work by its job's name, quickly where there are many.
func inputFinder(ins []Input) func(job string) (Digest, bool) {
	if len(ins) > 16 {
		m := make(map[string]Digest, len(ins))
		for _, in := range ins {
			m[in.Job] = in.Work
		}
		return func(job string) (Digest, bool) { w, ok := m[job]; return w, ok }
	}
	return func(job string) (Digest, bool) {
		for _, in := range ins {
			if in.Job == job {
				return in.Work, true
			}
		}
		return "", false
	}
}

// expand replaces ${NAME} where value knows the name, and leaves anything else as it is.
func expand(s string, value func(name string) (string, bool)) string {
	if !strings.Contains(s, "${") {
		return s
	}
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		name, after, closed := strings.Cut(rest, "}")
		v, known := "", false
		if closed {
			v, known = value(name)
		}
		if known {
			b.WriteString(v)
			s = after
			continue
		}
		b.WriteString("${")
		s = rest
	}
}
