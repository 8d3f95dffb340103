package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/lmittmann/tint"
	"github.com/spf13/pflag"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/reconcile"
)

// logFlags are how a verb that acts speaks. With --log-format every line is one event with its attributes, on standard
// error, and nothing is printed for people.
type logFlags struct{ format, level string }

func (l *logFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&l.format, "log-format", "", "json or text: every line is an event with its attributes, on standard error, in place of the lines for people")
	f.StringVar(&l.level, "log-level", "", "debug, info, warn or error (default: that of HEADWAY_LOG, or info with --log-format and else error)")
}

// into returns the environment with its log.
func (l *logFlags) into(e env) (env, error) {
	level := cmp.Or(l.level, e.getenv("HEADWAY_LOG"))
	if l.format != "" {
		level = cmp.Or(level, "info")
	}
	if _, ok := levels[cmp.Or(l.level, "error")]; !ok {
		return e, &exit{code: exitError, err: fmt.Errorf("--log-level is %q, expected debug, info, warn or error", l.level)}
	}
	switch l.format {
	case "", "json", "text":
	default:
		return e, &exit{code: exitError, err: fmt.Errorf("--log-format is %q, expected json or text", l.format)}
	}
	if e.hidden == nil {
		e.hidden = hide(e.getenv)
	}
	e.log, e.events = e.newLog(l.format, level), l.format != ""
	return e, nil
}

// levels by name. (Table of values.)
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// logger is the log of this process; where no flag said how, errors alone: the verbs print what was done and what failed.
func (e env) logger() *slog.Logger {
	if e.log != nil {
		return e.log
	}
	return e.newLog("", e.getenv("HEADWAY_LOG"))
}

// newLog makes a log: on a terminal for people, else a JSON object a line.
func (e env) newLog(format, level string) *slog.Logger {
	at, ok := levels[level]
	if !ok {
		at = slog.LevelError
	}
	hide := func(_ []string, a slog.Attr) slog.Attr {
		switch a.Value.Kind() {
		case slog.KindString:
			a.Value = slog.StringValue(e.hidden.from(a.Value.String()))
		case slog.KindAny:
			if err, is := a.Value.Any().(error); is {
				a.Value = slog.StringValue(e.hidden.from(err.Error()))
			}
		default:
		}
		return a
	}
	if format == "text" || format == "" && e.errTTY {
		return slog.New(tint.NewTextHandler(e.stderr, &tint.Options{Level: at, TimeFormat: "15:04:05", NoColor: !e.errTTY || e.getenv("NO_COLOR") != "", ReplaceAttr: hide}))
	}
	return slog.New(slog.NewJSONHandler(e.stderr, &slog.HandlerOptions{Level: at, ReplaceAttr: hide}))
}

// hidden are values that no line may show. A nil one knows of none, and still takes out what looks like a key.
type hidden struct {
	mu     sync.Mutex
	values []string         // the longest first, so that of one within another nothing is left over
	as     []*regexp.Regexp // how each may be written
}

// written matches a value as it is, within JSON, and within Markdown, where escapes stand for what would be markup.
func written(value string) *regexp.Regexp {
	var b strings.Builder
	for _, r := range value {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			b.WriteRune(r)
			continue
		}
		if r == utf8.RuneError { // also a byte that is no UTF-8, which matches as this rune does
			b.WriteString(`(?:\x{FFFD}|\\ufffd)`)
			continue
		}
		quoted, _ := json.Marshal(string(r)) // a string always can be
		fmt.Fprintf(&b, "(?:&#8203;)?(?:%s|%s|&#%d;)(?:&#8203;)?", regexp.QuoteMeta(string(r)), regexp.QuoteMeta(string(quoted[1:len(quoted)-1])), r)
	}
	return regexp.MustCompile(b.String())
}

// hide knows of the keys that this process itself may hold.
func hide(getenv func(string) string) *hidden {
	h := &hidden{}
	for _, name := range []string{"HEADWAY_GIT_TOKEN", "HEADWAY_FORGE_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		h.add(getenv(name))
	}
	return h
}

// add notes a secret's value; one so short that it could be any word is not looked for.
func (h *hidden) add(value string) {
	if h == nil || len(value) < 8 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.values {
		if v == value {
			return
		}
	}
	at, _ := slices.BinarySearchFunc(h.values, len(value), func(v string, n int) int { return n - len(v) })
	h.values, h.as = slices.Insert(h.values, at, value), slices.Insert(h.as, at, written(value))
}

// from returns s without what is secret, safe to print.
func (h *hidden) from(s string) string { return plan.Redact(h.known(s)) }

// known takes out the values that are known, and nothing that only looks like a key.
func (h *hidden) known(s string) string {
	if h != nil {
		h.mu.Lock()
		for _, as := range h.as {
			s = as.ReplaceAllLiteralString(s, "(not shown)")
		}
		h.mu.Unlock()
	}
	return s
}

// logged makes the error that ends a verb an event, where events are wanted: then nothing is left to print but its code.
func (e env) logged(err error) error {
	if err == nil || !e.events || errors.Is(err, context.Canceled) {
		return err
	}
	x, ok := errors.AsType[*exit](err)
	if !ok {
		x = &exit{code: exitError, err: err}
	}
	if x.err != nil {
		e.log.Error(clean(x.err.Error()), "hint", clean(x.hint), "code", x.code)
	}
	return &exit{code: x.code}
}

// refused says which guards keep a commit from being followed.
func (e env) refused(refusals []reconcile.Refusal) {
	if !e.events {
		printRefusals(e, refusals)
		return
	}
	for _, r := range refusals {
		e.log.Warn("refused", "code", r.Code, "reason", clean(r.Text), "hint", clean(r.Hint))
	}
}

// note says what people may want to know.
func note(e env, format string, args ...any) {
	text := clean(fmt.Sprintf(format, args...))
	if e.events {
		e.log.Info(text)
		return
	}
	fmt.Fprintf(e.stdout, "%s\n", e.hidden.from(text))
}
