package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/headway-run/headway/runners/audit"
)

// history holds saved versions of witnesses against the table of moves.
func (d *doctor) history(ctx context.Context, name string) error {
	v, err := heed(ctx, func() (audit.Versions, error) { return d.versions(name) })
	if err != nil {
		return err
	}
	if d.asJSON {
		doc := struct {
			FormatVersion string `json:"format_version"`
			OK            bool   `json:"ok"`
			audit.Versions
		}{"1.0", v.Finding == nil, v}
		if err := printJSON(d.stdout, doc); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(d.stdout, "    looked at %s of %s\n", count(v.Versions, "version"), count(v.Works, "work"))
	}
	f := v.Finding
	if f == nil {
		if !d.asJSON {
			d.good("history", "every version is an allowed move from the one before it")
		}
		return nil
	}
	if !d.asJSON {
		where := fmt.Sprintf("line %d", v.Line)
		if f.Key != where {
			where += ": " + clean(f.Key)
		}
		fmt.Fprintf(d.stdout, "%s %s: %s: %s\n    do: %s\n", d.paint(red, "BAD"), f.Invariant, where, clean(f.Text), clean(f.Do))
	}
	return &exit{code: exitError, err: fmt.Errorf("line %d is no allowed move", v.Line)}
}

// versions reads a file of saved witnesses, or standard input.
func (d *doctor) versions(name string) (v audit.Versions, err error) {
	var r io.Reader = d.stdin
	if name != "-" {
		if !filepath.IsAbs(name) {
			name = filepath.Join(d.dir, name)
		}
		f, oerr := os.Open(name)
		if oerr != nil {
			return v, &exit{code: exitError, err: oerr, hint: "--history takes a file with one lease a line, oldest first, or - for standard input"}
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		r = f
	}
	return audit.History(r)
}

// heed does what may wait for input without an end, and no longer than the context lasts: opening a pipe and reading it
// know no context. What waits then is left behind, for the program ends.
func heed[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	got := make(chan answer, 1)
	go func() {
		v, err := do()
		got <- answer{v, err}
	}()
	select {
	case a := <-got:
		return a.v, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
