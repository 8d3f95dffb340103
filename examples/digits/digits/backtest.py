"""Scores a trained model on the rows that neither its training nor its validation has seen."""

from __future__ import annotations

import argparse
import os
import random

import headway as w
import net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder of the training's result")
    args = parser.parse_args()

    state = net.load(os.path.join(args.model, "model.json"))
    model = net.Net(1, random.Random(0))
    model.restore(state["model"])
    with w.attach() as run:
        held_out = net.read(state["seed"])[2]
        accuracy = model.accuracy(held_out)
        run.step(1)
        run.finish(accuracy=accuracy)
        print("accuracy %.4f on %d rows held out" % (accuracy, len(held_out)), flush=True)


if __name__ == "__main__":
    main()
