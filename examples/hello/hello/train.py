"""The smallest training loop that survives its machine: it estimates pi by throwing darts.

Run it by itself (python3 train.py) or let headway run it: without an agent the headway calls do nothing.
"""
import argparse
import json
import os
import random
import time

import headway as w

args = argparse.ArgumentParser()
args.add_argument("--steps", type=int, default=300)
args.add_argument("--seed", type=int, default=1)
args = args.parse_args()

with w.attach() as run:
    rng, hits, start = random.Random(args.seed), 0, 0
    snapshot = run.resume()
    if snapshot:  # somebody before us got this far
        with open(os.path.join(snapshot.path, "state.json"), encoding="utf-8") as f:
            state = json.load(f)
        hits, start = state["hits"], snapshot.step
        rng.setstate((state["rng"][0], tuple(state["rng"][1]), state["rng"][2]))

    for step in run.steps(start, args.steps):
        hits += sum(rng.random() ** 2 + rng.random() ** 2 < 1 for _ in range(1000))
        time.sleep(0.02)  # a real step would compute
        if run.milestone_due():
            os.makedirs("snapshot", exist_ok=True)
            with open("snapshot/state.json", "w", encoding="utf-8") as f:
                json.dump({"hits": hits, "rng": rng.getstate()}, f)
            run.milestone("snapshot", step)
            print(f"step {step}: pi is about {4 * hits / (1000 * step):.3f}", flush=True)
        run.note(estimate=4 * hits / (1000 * step))

    run.finish(estimate=4 * hits / (1000 * args.steps))
