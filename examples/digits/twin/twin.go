// Package twin is the digits example once more in Go, over the Go client, for machines without python3: the same data,
// the same network, the same milestones. It is what a Go training program that headway finishes looks like. Killed
// anywhere it goes on from its last milestone to the very same weights; they are not those of the Python program, whose
// random numbers are others.
package twin

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-run/headway/runners/goclient"
)

// options are the command line of Train.
type options struct {
	lr            float64
	seed          uint64
	steps         int64
	hidden, batch int
	data, model   string
}

// state is all that a step depends on: a milestone.
type state struct {
	Step int64    `json:"step"`
	RNG  []byte   `json:"rng"` // generator of the batches
	Net  *network `json:"net"`
}

// model is the result that a backtest reads.
type model struct {
	Seed uint64   `json:"seed"` // of the split: which rows it has not seen
	Net  *network `json:"net"`
}

// Train fits the network and writes model.json and metrics.json (val_accuracy, 0 to 1) into the result folder. args
// are its flags: --lr, --seed, --steps, --hidden, --batch, --data. A run that ended early (lease lost, place wanted
// back, ctx over) is an error, and the caller's process must not exit with 0.
func Train(ctx context.Context, args []string, stdout io.Writer) (err error) {
	o, err := parseArgs("train", args, stdout)
	if err != nil {
		return err
	}
	rows, err := read(o.data, o.seed)
	if err != nil {
		return err
	}
	if o.batch < 1 || o.batch > len(rows.train) || o.hidden < 1 {
		return fmt.Errorf("--batch %d --hidden %d: expected a batch of 1 to %d rows and one hidden unit or more", o.batch, o.hidden, len(rows.train))
	}
	run, err := goclient.Attach()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close(err)) }()
	t, err := start(run, o, stdout)
	if err != nil {
		return err
	}
	if err := t.loop(ctx, rows.train); err != nil {
		return err
	}
	end, err := run.Phase("eval", time.Minute)
	if err != nil {
		return err
	}
	accuracy := t.Net.accuracy(rows.validation)
	if err := end(); err != nil {
		return err
	}
	if err := save(run, "model.json", model{o.seed, t.Net}); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "validation accuracy %.4f\n", accuracy)
	return run.Finish(map[string]float64{"val_accuracy": accuracy})
}

// Backtest scores a trained model (--model FOLDER) on the rows held out and writes metrics.json (accuracy, 0 to 1).
func Backtest(ctx context.Context, args []string, stdout io.Writer) (err error) {
	o, err := parseArgs("backtest", args, stdout)
	if err != nil {
		return err
	}
	var m model
	if err := load(filepath.Join(o.model, "model.json"), &m); err != nil {
		return err
	}
	rows, err := read(o.data, m.Seed)
	if err != nil {
		return err
	}
	run, err := goclient.Attach()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close(err)) }()
	accuracy := m.Net.accuracy(rows.heldOut)
	if err := run.Step(1); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "accuracy %.4f on %d rows held out\n", accuracy, len(rows.heldOut))
	return run.Finish(map[string]float64{"accuracy": accuracy})
}

func parseArgs(name string, args []string, stdout io.Writer) (o options, err error) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stdout)
	f.Float64Var(&o.lr, "lr", 0.05, "learning rate")
	f.Uint64Var(&o.seed, "seed", 7, "of the split, the first weights and the batches")
	f.Int64Var(&o.steps, "steps", 2000, "steps of the whole run")
	f.IntVar(&o.hidden, "hidden", 32, "hidden units")
	f.IntVar(&o.batch, "batch", 768, "rows per step; many, so that a step takes milliseconds")
	f.StringVar(&o.data, "data", "digits.csv.gz", "the rows")
	f.StringVar(&o.model, "model", "", "folder of a training's result")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%s: unexpected argument %q", name, f.Arg(0))
	}
	return o, nil
}

// training is a run in the making.
type training struct {
	state
	run    *goclient.Run
	o      options
	src    *rand.PCG
	stdout io.Writer
}

// start makes a new training, or takes up the one that a milestone holds.
func start(run *goclient.Run, o options, stdout io.Writer) (*training, error) {
	t := &training{run: run, o: o, src: rand.NewPCG(o.seed, 2), stdout: stdout}
	at, err := run.Resume()
	if err != nil {
		return nil, err
	}
	if at == nil {
		t.Net = newNetwork(o.hidden, rand.New(t.src))
		return t, nil
	}
	if err := load(filepath.Join(at.Path, "state.json"), &t.state); err != nil {
		return nil, err
	}
	if err := t.src.UnmarshalBinary(t.RNG); err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	fmt.Fprintf(stdout, "resumed at step %d\n", t.Step)
	return t, nil
}

// loop trains to the last step.
func (t *training) loop(ctx context.Context, rows []row) error {
	rng := rand.New(t.src)
	batch := make([]*row, t.o.batch)
	for n := range t.run.Steps(t.Step, t.o.steps) {
		if err := ctx.Err(); err != nil {
			return err
		}
		order := rng.Perm(len(rows))
		for i := range batch {
			batch[i] = &rows[order[i]]
		}
		loss := t.Net.train(batch, t.o.lr)
		if n%50 == 0 {
			t.run.Note(map[string]float64{"loss": loss})
			fmt.Fprintf(t.stdout, "step %d loss %.4f\n", n, loss)
		}
		if t.run.MilestoneDue() {
			if err := t.milestone(n); err != nil {
				return err
			}
		}
	}
	return t.run.Err()
}

func (t *training) milestone(n int64) (err error) {
	t.Step = n
	if t.RNG, err = t.src.MarshalBinary(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "digits-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "state.json")
	if err := write(path, t.state); err != nil {
		return err
	}
	return t.run.Milestone(path, n, true)
}

// save writes a file of the result.
func save(run *goclient.Run, name string, v any) error {
	dir, err := run.ResultDir()
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, name), v)
}

// write is whole or not at all. Floats come back bit for bit.
func write(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

func load(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}
