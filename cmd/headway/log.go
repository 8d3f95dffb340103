package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-run/headway/runners"
)

// newLog is both followers: what the program printed (log) and what the worker says it did (events).
func newLog(e env, program bool) *cobra.Command {
	use, short := "log JOB", "what the program printed, across attempts without a gap"
	if !program {
		use, short = "events JOB", "what the workers of a job did, one JSON object a line"
	}
	var follow bool
	var from string
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			op, err := openNamed(ctx, e.at(c), args[0])
			if err != nil {
				return err
			}
			cursor, err := runners.ParseCursor(from)
			if err != nil {
				return &exit{code: exitError, err: err, hint: "a place is ATTEMPT:BYTES as --from of an earlier call printed it, for example 2:12345"}
			}
			d := runners.Dispatcher{Bucket: op.b}
			read := d.Log
			if !program {
				read = d.Events
			}
			shown := printer{to: e.stdout}
			for lines := 0; ; {
				chunk, err := read(ctx, string(op.work), cursor)
				if errors.Is(err, ctx.Err()) && ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return &exit{code: exitError, err: err, hint: "go on with --from " + cursor.String()}
				}
				shown.print(chunk.Lines)
				lines += len(chunk.Lines)
				cursor = chunk.Next
				if chunk.More {
					continue
				}
				if !follow || chunk.Over {
					if lines == 0 && from == "" && chunk.Over {
						fmt.Fprintln(e.stderr, "nothing is kept of it: it is finished, and printed nothing or retention let it go")
					} else if cursor.Offset == 0 && cursor.Attempt <= 1 {
						fmt.Fprintln(e.stderr, "nothing was uploaded yet: headway status "+args[0]+" says where it stands")
					}
					if follow || from != "" {
						fmt.Fprintf(e.stderr, "go on with --from %s\n", cursor)
					}
					return nil
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(time.Second):
				}
			}
		}}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "stay until the work is finished")
	c.Flags().StringVar(&from, "from", "", "go on from this place (ATTEMPT:BYTES)")
	return c
}

// printer prints lines that come from another machine, escaped.
type printer struct {
	to   io.Writer
	open int64 // > 0: the attempt whose last line has not ended yet
}

// print prints lines. One that has not ended goes on with the next one of its attempt; where none comes any more, since a machine
// vanished, the next attempt's begins a line of its own.
func (p *printer) print(lines []runners.Line) {
	for _, l := range lines {
		if p.open > 0 && (l.Attempt != p.open || l.Missing > 0) {
			fmt.Fprintln(p.to)
		}
		p.open = 0
		if l.Missing > 0 {
			fmt.Fprintf(p.to, "[%d bytes are missing here: a segment of attempt %d never arrived]\n", l.Missing, l.Attempt)
			continue
		}
		end := "\n"
		if !l.Whole() {
			end, p.open = "", l.Attempt
		}
		fmt.Fprint(p.to, runners.Sanitize(l.Data), end)
	}
}
