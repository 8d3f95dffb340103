package runners_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-run/headway/runners"
	"github.com/headway-run/headway/runners/bucket/mem"
	"github.com/headway-run/headway/runners/record"
	"github.com/headway-run/headway/runners/sim"
)

// The six verbs on one work: it is launched, looked at, followed, ended in the store, and its place is given back. Here the
// store is memory and the platform a simulated one; with others the calls are the same.
func Example() {
	ctx := context.Background()
	store := mem.New()
	platform, err := sim.New(sim.Config{Platform: "here", Bucket: store, Model: sim.Model{Start: time.Millisecond, Step: 5 * time.Millisecond, Steps: 1e9, Milestone: 10}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer platform.Close()
	headway := runners.Dispatcher{Bucket: store}

	work := record.Hash([]byte(`what is computed, as canonical JSON`))
	order := runners.Launch{Work: work, Dispatch: 1, Job: "digits",
		Spec: record.Spec{Protocol: record.Protocol, Work: work, Kind: "train", Argv: []string{"python3", "train.py"}},
		Claim: record.Claim{Protocol: record.Protocol, Work: work, Dispatch: 1, Nonce: record.Nonce(), Dispatcher: "example",
			Platform: "here", Runner: "sim", Job: "digits", CaptureS: 600}}
	for _, l := range headway.Launch(ctx, platform, []runners.Launch{order}) {
		fmt.Println("launch: ours:", l.Claimed, "error:", l.Err)
	}

	// Nobody calls back: whoever wants to know looks.
	status := runners.Status{}
	for status.Witness == nil || status.Witness.Record.Resume == nil {
		if status, err = headway.Status(ctx, work); err != nil {
			fmt.Println(err)
			return
		}
		<-time.After(time.Millisecond)
	}
	fmt.Println("status:", status.Phase, "in attempt", status.Witness.Record.Attempt)

	first(ctx, "events", work, headway.Events)
	first(ctx, "log", work, headway.Log)

	revoked, err := headway.Revoke(ctx, work, "the example is over", runners.RevokeOptions{Stop: true})
	fmt.Println("revoke:", revoked.Seen.Record.State, err)

	answer, err := headway.Release(ctx, platform, work, 1)
	fmt.Println("release:", answer.Settlement, err)
	if status, err = headway.Status(ctx, work); err == nil {
		fmt.Println("status:", status.Phase)
	}

	// Output:
	// launch: ours: true error: <nil>
	// status: running in attempt 1
	// events: {"event":"start","step":0,"attempt":1}
	// log: step 1 loss 0.5000
	// revoke: revoked <nil>
	// release: closed <nil>
	// status: stopped
}

// first prints the first line of what a worker has written. It comes from another machine, so it is made safe to print.
func first(ctx context.Context, name, work string, verb func(context.Context, string, runners.Cursor) (runners.Chunk, error)) {
	chunk, err := verb(ctx, work, runners.Cursor{})
	if err != nil || len(chunk.Lines) == 0 {
		fmt.Println(name, err)
		return
	}
	fmt.Println(name+":", runners.Sanitize(chunk.Lines[0].Data))
}
