package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// decoder reads values from the nodes of one file. Each reader reports what is wrong by itself and says whether the
// value may be used.
type decoder struct {
	file  string // path of the file, relative to the root
	index int    // of the file in the loader's list
	ps    *problems
}

func (d *decoder) refuse(n *node, code, text, expected, hint string) {
	d.ps.refuse(at(d.file, n), code, text, expected, hint)
}

// wrongType reports that n is not what the field holds. A null was reported before.
func (d *decoder) wrongType(n *node, f *Field, expected, hint string) {
	if !isNull(n) && n.Kind != aliasNode {
		d.refuse(n, "WrongType", f.Name+" is "+describe(n), expected, hint)
	}
}

// scalar gives the text of a scalar and whether it was written plainly.
func (d *decoder) scalar(n *node, f *Field, expected string) (s string, plain, ok bool) {
	if n.Kind != scalarNode || isNull(n) {
		d.wrongType(n, f, expected, "")
		return "", false, false
	}
	return n.Value, isPlain(n), true
}

// text is a line of text. A bare number, true or yes is refused, since what was meant is not known.
func (d *decoder) text(n *node, f *Field) (string, bool) {
	s, ok := d.longText(n, f)
	if ok && strings.ContainsAny(s, "\n\r") {
		d.refuse(n, "WrongType", f.Name+" has several lines", "one line", "")
		return "", false
	}
	return s, ok
}

func (d *decoder) longText(n *node, f *Field) (string, bool) {
	s, plain, ok := d.scalar(n, f, "text")
	if !ok || !d.clean(n, f, s) {
		return "", false
	}
	if plain && (looksNumber(s) || looksBool(s)) {
		d.refuse(n, "WrongType", f.Name+" is "+show(s)+" without quotes", "text", "quote it: "+strconv.Quote(clip(s)))
		return "", false
	}
	return s, true
}

// clean refuses control characters, which a double-quoted scalar may hold as escapes.
func (d *decoder) clean(n *node, f *Field, s string) bool {
	if len(s) > MaxText {
		d.refuse(n, "TooLong", fmt.Sprintf("%s has %d bytes", f.Name, len(s)), fmt.Sprintf("at most %d", MaxText), "put long text into a file of the code folder")
		return false
	}
	for _, r := range s {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			d.refuse(n, "ControlCharacter", fmt.Sprintf("%s holds the control character U+%04X", f.Name, r), "printable text", "")
			return false
		}
	}
	return true
}

// value is any scalar, as written: 0.10 stays 0.10. Forms that YAML readers disagree about are refused.
func (d *decoder) value(n *node, f *Field) (string, bool) {
	s, plain, ok := d.scalar(n, f, "one value")
	if !ok || !d.clean(n, f, s) {
		return "", false
	}
	if !plain {
		return s, true
	}
	switch {
	case looksBool(s) && s != "true" && s != "false":
		d.refuse(n, "WrongType", f.Name+" has "+show(s)+", which some programs read as true or false", "true or false", "quote it if it is text")
	case looksNumber(s) && !isDecimal(s):
		d.refuse(n, "WrongType", f.Name+" has "+show(s)+", which programs read in different ways", "a plain decimal number", "quote it if it is text")
	default:
		return s, true
	}
	return "", false
}

// envValue is a value whose variable's name does not promise a secret (see textMap for the name).
func (d *decoder) envValue(n *node, f *Field) (string, bool) { return d.value(n, f) }

func (d *decoder) choice(n *node, f *Field) (string, bool) {
	s, _, ok := d.scalar(n, f, oneOf(f.Allowed))
	if !ok {
		return "", false
	}
	for _, a := range f.Allowed {
		if a == s {
			return s, true
		}
	}
	d.refuse(n, "BadValue", f.Name+" is "+show(s), oneOf(f.Allowed), didYouMean(s, f.Allowed, ""))
	return "", false
}

func oneOf(list []string) string { return "one of " + strings.Join(list, ", ") }

func (d *decoder) bool(n *node, f *Field) (bool, bool) {
	s, plain, ok := d.scalar(n, f, "true or false")
	if !ok {
		return false, false
	}
	if plain && (s == "true" || s == "false") {
		return s == "true", true
	}
	hint := ""
	if looksBool(s) {
		hint = "write true or false, without quotes"
	}
	d.refuse(n, "WrongType", f.Name+" is "+show(s), "true or false", hint)
	return false, false
}

// int64 is a whole number in plain decimal digits.
func (d *decoder) int64(n *node, f *Field) (int64, bool) {
	s, plain, ok := d.scalar(n, f, "a whole number")
	if !ok {
		return 0, false
	}
	if why := notWhole(s, plain); why != "" {
		d.refuse(n, "NotWhole", f.Name+" is "+show(s), "a whole number in plain digits", why)
		return 0, false
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		d.refuse(n, "NotWhole", f.Name+" is "+show(s), fmt.Sprintf("a number from %d to %d", math.MinInt64, int64(math.MaxInt64)), "")
		return 0, false
	}
	return v, true
}

// notWhole says why a scalar is not a whole number in plain digits, or "".
func notWhole(s string, plain bool) string {
	digits := strings.TrimPrefix(s, "-")
	switch {
	case allDigits(digits) && !plain:
		return "take the quotes away"
	case allDigits(digits) && len(digits) > 1 && digits[0] == '0':
		return "no leading zero: some programs read it as octal"
	case allDigits(digits) && s != "-0":
		return ""
	case strings.Contains(s, "_"):
		return "no underscores"
	case strings.HasPrefix(digits, "0x") || strings.HasPrefix(digits, "0o") || strings.HasPrefix(digits, "0b"):
		return "no other base than ten"
	case strings.ContainsAny(s, ".eE") && looksNumber(s):
		return "it would have to be rounded"
	}
	return "for example 7"
}

func (d *decoder) ranged(n *node, f *Field, least, most int64) (int64, bool) {
	v, ok := d.int64(n, f)
	if ok && (v < least || v > most) {
		d.refuse(n, "OutOfRange", fmt.Sprintf("%s is %d", f.Name, v), fmt.Sprintf("%d to %d", least, most), "")
		return 0, false
	}
	return v, ok
}

func (d *decoder) natural(n *node, f *Field) (int64, bool) { return d.ranged(n, f, 0, math.MaxInt64) }

func (d *decoder) positive(n *node, f *Field) (int, bool) {
	v, ok := d.ranged(n, f, 1, 1_000_000)
	return int(v), ok
}

func (d *decoder) retries(n *node, f *Field) (int, bool) {
	v, ok := d.ranged(n, f, 0, 1000)
	return int(v), ok
}

func (d *decoder) int(n *node, f *Field) (int, bool) {
	v, ok := d.ranged(n, f, -1_000_000, 1_000_000)
	return int(v), ok
}

func (d *decoder) float(n *node, f *Field) (float64, bool) {
	s, plain, ok := d.scalar(n, f, "a number")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	if !plain || !isDecimal(s) || err != nil || math.IsInf(v, 0) {
		hint := "for example 0.9"
		if isDecimal(s) && !plain {
			hint = "take the quotes away"
		}
		d.refuse(n, "NotNumber", f.Name+" is "+show(s), "a plain decimal number", hint)
		return 0, false
	}
	return v, true
}

func (d *decoder) factor(n *node, f *Field) (float64, bool) {
	v, ok := d.float(n, f)
	if ok && (v < 1 || v > 1e6) {
		d.refuse(n, "OutOfRange", f.Name+" is "+show(n.Value), "1 to 1000000", "")
		return 0, false
	}
	return v, ok
}

// duration is a positive time: whole numbers with d, h, m, s or ms, from the largest unit to the smallest.
func (d *decoder) duration(n *node, f *Field) (time.Duration, bool) {
	s, _, ok := d.scalar(n, f, "a duration")
	if !ok {
		return 0, false
	}
	v, why := parseDuration(s)
	if why != "" {
		d.refuse(n, "BadDuration", f.Name+" is "+show(s), "a duration such as 36h, 90m, 2d or 45s", why)
		return 0, false
	}
	return v, true
}

// durationUnits from the largest to the smallest. (Table of values.)
var durationUnits = []struct {
	name string
	unit time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

// maxDuration bounds every duration: ten years.
const maxDuration = 3650 * 24 * time.Hour

func parseDuration(s string) (total time.Duration, why string) {
	if allDigits(s) {
		return 0, "give a unit: d, h, m, s or ms"
	}
	next := 0
	for rest := s; rest != ""; {
		i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if i <= 0 {
			return 0, "whole numbers, each with its unit"
		}
		if i > 9 {
			return 0, "at most 3650d"
		}
		v, _ := strconv.Atoi(rest[:i]) // at most nine digits
		rest = rest[i:]
		e := strings.IndexFunc(rest, func(r rune) bool { return r >= '0' && r <= '9' })
		if e < 0 {
			e = len(rest)
		}
		u := next
		for u < len(durationUnits) && durationUnits[u].name != rest[:e] {
			u++
		}
		if u == len(durationUnits) {
			return 0, "units are d, h, m, s and ms, the largest first"
		}
		if time.Duration(v) > maxDuration/durationUnits[u].unit {
			return 0, "at most 3650d"
		}
		total += time.Duration(v) * durationUnits[u].unit
		next, rest = u+1, rest[e:]
	}
	switch {
	case total <= 0:
		return 0, "it must be more than nothing"
	case total > maxDuration:
		return 0, "at most 3650d"
	}
	return total, ""
}

// every is "200 steps" or a duration.
func (d *decoder) every(n *node, f *Field) (Milestones, bool) {
	s, _, ok := d.scalar(n, f, `"200 steps" or a duration`)
	if !ok {
		return Milestones{}, false
	}
	if num, unit, is := strings.Cut(s, " "); is && (unit == "steps" || unit == "step") {
		v, err := strconv.ParseInt(num, 10, 64)
		if err == nil && notWhole(num, true) == "" && v > 0 {
			return Milestones{Steps: v}, true
		}
	}
	if v, why := parseDuration(s); why == "" {
		return Milestones{Every: v}, true
	}
	hint := "for example 200 steps"
	if allDigits(s) {
		hint = "give a unit: " + s + " steps, " + s + "m"
	}
	d.refuse(n, "BadInterval", f.Name+" is "+show(s), "a number of steps or a duration", hint)
	return Milestones{}, false
}

// amount is a number and the platform's own unit: 20 USD.
func (d *decoder) amount(n *node, f *Field) (Money, bool) {
	s, _, ok := d.scalar(n, f, "an amount")
	if !ok {
		return Money{}, false
	}
	m, good := parseMoney(s)
	if !good {
		d.refuse(n, "BadAmount", f.Name+" is "+show(s), "an amount above 0 and up to a billion, such as 20 USD", "a plain decimal number, a space and the platform's unit")
	}
	return m, good
}

// price is an amount per hour: 0.45/h or 0.45 USD/h.
func (d *decoder) price(n *node, f *Field) (Money, bool) {
	s, _, ok := d.scalar(n, f, "a price")
	if !ok {
		return Money{}, false
	}
	num, perHour := strings.CutSuffix(s, "/h")
	m, good := parseMoney(num)
	if !good || !perHour {
		hint := ""
		if v, err := strconv.ParseFloat(strings.Fields(num + " x")[0], 64); err == nil && v == 0 {
			hint = "leave out what is free, or has no limit"
		}
		d.refuse(n, "BadPrice", f.Name+" is "+show(s), "a price per hour above 0 and up to a billion, such as 0.45/h or 0.45 USD/h", hint)
		return Money{}, false
	}
	return m, true
}

// maxMoney bounds every amount and price, as in the records of launches.
const maxMoney = 1e9

func parseMoney(s string) (Money, bool) {
	num, unit, has := strings.Cut(s, " ")
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || !isDecimal(num) || strings.ContainsAny(num, "eE-") || v <= 0 || v > maxMoney {
		return Money{}, false
	}
	if has && (unit == "" || len(unit) > 16 || strings.Trim(unit, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
		return Money{}, false
	}
	return Money{Amount: v, Unit: unit}, true
}

// looksBool lists what one YAML reader or another takes for a truth value.
func looksBool(s string) bool {
	switch s {
	case "yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF",
		"true", "True", "TRUE", "false", "False", "FALSE":
		return true
	}
	return false
}

// looksNumber says that one YAML reader or another takes s for a number.
func looksNumber(s string) bool {
	t := strings.TrimLeft(s, "+-")
	if t == "" || len(s)-len(t) > 1 {
		return false
	}
	switch strings.ToLower(t) {
	case ".inf", ".nan":
		return true
	}
	if t[0] != '.' && (t[0] < '0' || t[0] > '9') {
		return false
	}
	if strings.HasPrefix(t, "0x") || strings.HasPrefix(t, "0o") || strings.HasPrefix(t, "0b") {
		_, err := strconv.ParseUint(strings.ReplaceAll(t, "_", ""), 0, 64)
		return err == nil
	}
	_, err := strconv.ParseFloat(strings.ReplaceAll(t, "_", ""), 64)
	return err == nil || strings.Contains(err.Error(), "range")
}

// isDecimal says that s is a number in the one form that every reader agrees about: 12, -0.5, 3.0e-4.
func isDecimal(s string) bool {
	t := strings.TrimPrefix(s, "-")
	whole, rest := digitRun(t)
	if whole == "" || len(whole) > 1 && whole[0] == '0' {
		return false
	}
	if after, ok := strings.CutPrefix(rest, "."); ok {
		var frac string
		if frac, rest = digitRun(after); frac == "" {
			return false
		}
	}
	if rest == "" {
		return true
	}
	if rest[0] != 'e' && rest[0] != 'E' {
		return false
	}
	exp := strings.TrimPrefix(strings.TrimPrefix(rest[1:], "+"), "-")
	return allDigits(exp) && len(exp) <= 4
}

func digitRun(s string) (run, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

func allDigits(s string) bool {
	run, rest := digitRun(s)
	return run != "" && rest == ""
}
