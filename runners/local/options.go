package local

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the platform entry's own fields, parsed.
type options struct {
	cards   int // of one launch; 0: they are not dealt
	scratch string
	grace   time.Duration
	keep    int
}

// optionNames are the fields that a platform of this runner may have: a table of values.
var optionNames = map[string]string{
	"cards":   "cards of one launch, each of which carries a job, for example 2",
	"scratch": "folder for the files of launches",
	"grace":   "time between asking an agent to end and killing it, for example 30s",
	"keep":    "ended launches whose log and files stay for a look, for example 20",
}

func parseOptions(c Config) (options, error) {
	o := options{scratch: c.Scratch, grace: defaultGrace, keep: defaultKeep}
	if c.Platform == "" || strings.ContainsAny(c.Platform, "/\x00") || strings.HasPrefix(c.Platform, ".") {
		return o, fmt.Errorf("name %q cannot be a folder's name", c.Platform)
	}
	if len(c.Agent) == 0 || c.Agent[0] == "" {
		return o, errors.New("no agent command was given")
	}
	if c.Slots < 0 || c.Slots > 4096 {
		return o, fmt.Errorf("slots: found %d, expected 1 to 4096", c.Slots)
	}
	for _, k := range slices.Sorted(maps.Keys(c.Options)) {
		v := c.Options[k]
		var err error
		switch k {
		case "cards":
			o.cards, err = strconv.Atoi(v)
			if err != nil || o.cards < 1 || o.cards > 64 {
				return o, fmt.Errorf("cards: found %q, expected how many cards one launch has, 1 to 64", v)
			}
		case "scratch":
			o.scratch = v
		case "grace":
			o.grace, err = time.ParseDuration(v)
			if err != nil || o.grace < 0 || o.grace > time.Hour {
				return o, fmt.Errorf("grace: found %q, expected a time of at most an hour, for example 30s", v)
			}
		case "keep":
			o.keep, err = strconv.Atoi(v)
			if err != nil || o.keep < 0 {
				return o, fmt.Errorf("keep: found %q, expected a number of launches, for example 20", v)
			}
		default:
			return o, unknownOption(k)
		}
	}
	if !filepath.IsAbs(o.scratch) {
		return o, fmt.Errorf("scratch: found %q, expected an absolute path", o.scratch)
	}
	return o, nil
}

// Check says what is wrong with the slots and the options of a configuration, without making anything.
func Check(c Config) error {
	c.Platform, c.Agent = "check", []string{"check"}
	if c.Scratch == "" {
		c.Scratch = string(filepath.Separator)
	}
	_, err := parseOptions(c)
	return err
}

func unknownOption(k string) error {
	names := slices.Sorted(maps.Keys(optionNames))
	best, distance := "", 4 // farther than three letters away is no slip of the pen
	for _, n := range names {
		if d := editDistance(k, n); d < distance {
			best, distance = n, d
		}
	}
	if best != "" {
		return fmt.Errorf("unknown option %q for the runner local: did you mean %q (%s)?", k, best, optionNames[best])
	}
	return fmt.Errorf("unknown option %q for the runner local: it knows %s", k, strings.Join(names, ", "))
}

// editDistance is the number of letters to insert, remove or change (Levenshtein) to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
