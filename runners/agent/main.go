package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-run/headway/runners/agent/fingerprint"
	"github.com/headway-run/headway/runners/agent/guard"
	"github.com/headway-run/headway/runners/bucket"
)

// Deps is what a binary hands to Main, so that this package links no store and no Python.
type Deps struct {
	Open   func(ctx context.Context, url string, environ []string) (bucket.Bucket, error)
	Python fs.FS    // may be nil
	Self   []string // words behind this binary's own name that lead to Main: none, or {"agent"}
}

// factsWord is the first argument that makes this binary say what it would measure.
const factsWord = "facts"

// guardWord is the first argument with which this binary starts itself again as the guardian.
const guardWord = "guard"

const usage = `usage: %s [flags]

Takes one dispatch: captures its lease, runs its program, and ends with one of these exit codes:
  0 finished        12 yielded          16 refused: not the machine or order asked for
  1 internal        13 lease lost       17 store unreachable
 10 user code       14 revoked          18 disk full
 11 no result       15 nothing to do
SIGTERM or SIGINT: asks the program for a last milestone, then gives the lease back.

With the one word facts it takes nothing: it prints what it measures of this machine, as requires takes it.

`

// Main is the agent as a command: args without the program's name; every flag may stand in the environment instead
// (HEADWAY_STORE, HEADWAY_WORK, HEADWAY_DISPATCH, HEADWAY_PLATFORM, HEADWAY_SCRATCH, HEADWAY_WITHIN). ctx ends with the notice to leave.
// It returns the process's exit code: those of Run, and 1 for bad arguments.
func Main(ctx context.Context, args, environ []string, stdout, stderr io.Writer, d Deps) int {
	if len(args) > 0 && args[0] == guardWord {
		return guard.Main(args[1:])
	}
	if len(args) == 1 && args[0] == factsWord {
		fmt.Fprint(stdout, facts(ctx, environ))
		return 0
	}
	name := "headway-agent"
	if len(d.Self) > 0 {
		name = "headway " + strings.Join(d.Self, " ")
	}
	c, store, within, quiet, err := parse(name, args, environ, stdout, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		return CodeInternal
	}
	if c.Bucket, err = d.Open(ctx, store, environ); err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		return CodeStore
	}
	c.Python, c.Environ, c.Guard = d.Python, environ, append(selfCommand(), append(d.Self[:len(d.Self):len(d.Self)], guardWord)...)
	if !quiet {
		c.Log = slog.New(slog.NewTextHandler(stderr, nil))
	}
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	exit := Run(ctx, c)
	fmt.Fprintf(stderr, "%s: %s\n", exit.Class, exit.Text)
	return exit.Code
}

// facts prints the fingerprint of this machine as YAML; what changes nothing that is computed is a comment.
func facts(ctx context.Context, environ []string) string {
	found := fingerprint.Measure(ctx)
	found[fingerprint.Switches] = fingerprint.SwitchesOf(environ)
	var pins, rest strings.Builder
	for _, k := range slices.Sorted(maps.Keys(found)) {
		switch k {
		case fingerprint.Memory, fingerprint.Kernel, fingerprint.Container:
			fmt.Fprintf(&rest, "  # %s: %q\n", k, found[k])
		default:
			fmt.Fprintf(&pins, "  %s: %q\n", k, found[k])
		}
	}
	return "requires:\n" + pins.String() + rest.String()
}

func parse(name string, args, environ []string, stdout, stderr io.Writer) (c Config, store string, within time.Duration, quiet bool, err error) {
	env := map[string]string{}
	for _, e := range environ {
		k, v, _ := strings.Cut(e, "=")
		env[k] = v
	}
	var dispatch, bound string
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&store, "store", env["HEADWAY_STORE"], "store `URL`: dir:///path or s3://bucket/prefix?endpoint=…")
	f.StringVar(&c.Work, "work", env["HEADWAY_WORK"], "work digest, 64 `hex` digits")
	f.StringVar(&dispatch, "dispatch", env["HEADWAY_DISPATCH"], "`number` of the claimed dispatch")
	f.StringVar(&c.Platform, "platform", env["HEADWAY_PLATFORM"], "configured `name` of the platform; empty: not checked")
	f.StringVar(&c.Scratch, "scratch", env["HEADWAY_SCRATCH"], "`folder` for the run's files; default: the system's temporary one")
	f.StringVar(&bound, "within", env["HEADWAY_WITHIN"], "`time` after which it leaves by itself, as at a notice: 36h; empty: never")
	f.BoolVar(&quiet, "quiet", false, "no log on stderr")
	err = f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, usage, name)
		f.SetOutput(stdout)
		f.PrintDefaults()
		return c, "", 0, false, err
	}
	if err != nil {
		return c, "", 0, false, fmt.Errorf("%w; %s -h lists the flags", err, name)
	}
	if f.NArg() > 0 {
		return c, "", 0, false, fmt.Errorf("unexpected %q: everything is a flag; %s -h lists them", f.Arg(0), name)
	}
	for flagName, v := range map[string]string{"store": store, "work": c.Work, "dispatch": dispatch} {
		if v == "" {
			return c, "", 0, false, fmt.Errorf("no -%s and no HEADWAY_%s: the agent must know what to run", flagName, strings.ToUpper(flagName))
		}
	}
	if bound != "" {
		if within, err = time.ParseDuration(bound); err != nil || within <= 0 {
			return c, "", 0, false, fmt.Errorf("within %q: expected a time above 0, for example 36h", bound)
		}
	}
	if c.Dispatch, err = strconv.ParseInt(dispatch, 10, 64); err != nil {
		return c, "", 0, false, fmt.Errorf("dispatch %q: expected a number from 1 on", dispatch)
	}
	return c, store, within, quiet, nil
}

// selfCommand starts this very binary again, also when its file was replaced meanwhile.
func selfCommand() []string {
	if runtime.GOOS == "linux" {
		return []string{"/proc/self/exe"}
	}
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return []string{path}
}
