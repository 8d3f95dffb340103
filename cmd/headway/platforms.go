package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/headway-run/headway/plan"
	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/local"
)

// platforms makes the runner of each configured platform. This switch is the only list of plugins.
func (p *project) platforms(string) (map[string]runners.Runner, error) {
	out := map[string]runners.Runner{}
	names := make([]string, 0, len(p.plan.Config.Platforms))
	for name := range p.plan.Config.Platforms {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		c := p.plan.Config.Platforms[name]
		var r runners.Runner
		var err error
		switch c.Runner {
		case "local":
			r, err = p.local(c)
		default:
			err = fmt.Errorf("there is no runner %q; this build has: local", c.Runner)
		}
		if err != nil {
			return nil, &exit{code: exitError, err: fmt.Errorf("%s: platform %s: %w", c.Pos, name, err)}
		}
		out[name] = r
	}
	return out, nil
}

// local runs agents on this machine: this binary again, with the verb agent.
func (p *project) local(c plan.Platform) (runners.Runner, error) {
	return local.New(local.Config{
		Platform: c.Name, Slots: c.Slots, Options: c.Options,
		Scratch: filepath.Join(p.root, stateFolder, "scratch", strings.ReplaceAll(c.Name, "/", "_")),
		Agent:   []string{p.env.self, "agent"}, Environ: os.Environ(),
	})
}
