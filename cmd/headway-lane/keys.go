package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/headway-run/headway/deploylane/access"
)

// keysTimeout bounds the command that makes a worker's keys.
const keysTimeout = time.Minute

// workerKeys runs the command of lane.yaml that turns a policy, on its standard input, into keys that have no more rights.
// It has this process' environment, as it needs keys that may make others; what it prints is never shown.
func (e env) workerKeys(ctx context.Context, argv []string, p access.Policy) (map[string]string, error) {
	policy, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = e.dir, bytes.NewReader(policy), 5*time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &bounded{&out, 64 << 10}, &bounded{&said, maxAnswer}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.New("no answer within " + keysTimeout.String())
		}
		return nil, fmt.Errorf("worker_keys: %s: %w: %s", argv[0], err, clean(said.String()))
	}
	k, err := access.ReadKeys(out.Bytes(), time.Now())
	if err != nil {
		return nil, fmt.Errorf("worker_keys: %s: %w", argv[0], err)
	}
	return k.Env(), nil
}
