"""Trains a small network to read handwritten digits. Killed anywhere, it goes on from its last milestone to the very
same weights: the state has all that a step depends on."""

from __future__ import annotations

import argparse
import os
import random

import headway as w
import net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--seed", type=int, default=7, help="of the split, the first weights and the batches")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--hidden", type=int, default=32, help="hidden units")
    parser.add_argument("--batch", type=int, default=16, help="rows per step")
    args = parser.parse_args()

    train, validation, _ = net.read(args.seed)
    rng = random.Random(args.seed)
    model = net.Net(args.hidden, rng)
    start = 0

    with w.attach() as run:
        at = run.resume()
        if at:
            state = net.load(os.path.join(at.path, "state.json"))
            model.restore(state["model"])
            version, internal, gauss = state["rng"]
            rng.setstate((version, tuple(internal), gauss))
            start = state["step"]
            print("resumed at step %d" % start, flush=True)

        for n in run.steps(start, args.steps):
            loss = model.train(rng.sample(train, args.batch), args.lr)
            if n % 50 == 0:
                run.note(loss=loss)
                print("step %d loss %.4f" % (n, loss), flush=True)
            if run.milestone_due():
                net.write("state.json", {"step": n, "rng": rng.getstate(), "model": model.state()})
                run.milestone("state.json", n, move=True)

        with run.phase("eval", expect="1m"):
            accuracy = model.accuracy(validation)
        net.write(os.path.join(run.result_dir, "model.json"), {"seed": args.seed, "model": model.state()})
        run.finish(val_accuracy=accuracy)
        print("validation accuracy %.4f" % accuracy, flush=True)


if __name__ == "__main__":
    main()
