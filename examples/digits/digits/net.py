"""A network with one hidden layer, its data, and its arithmetic, in plain Python so that it runs anywhere."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import random
from operator import mul
from typing import Any, Dict, List, Sequence, Tuple

Row = Tuple[List[float], int]  # 64 pixels from 0 to 1, and the digit
PIXELS, DIGITS = 64, 10


def read(seed: int) -> Tuple[List[Row], List[Row], List[Row]]:
    """The rows for training (70 %), for validation (15 %) and held out (15 %); who falls where depends on the seed."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "digits.csv.gz")
    with gzip.open(path, "rt", newline="") as f:
        rows = [([int(v) / 16 for v in line[:PIXELS]], int(line[PIXELS])) for line in csv.reader(f)]
    random.Random("split %d" % seed).shuffle(rows)
    a, b = len(rows) * 70 // 100, len(rows) * 85 // 100
    return rows[:a], rows[a:b], rows[b:]


class Net:
    """64 pixels, ``hidden`` rectified units, 10 digits. A row of weights per unit, its bias last."""

    def __init__(self, hidden: int, rng: random.Random) -> None:
        self.w1 = [[rng.gauss(0, math.sqrt(2 / PIXELS)) for _ in range(PIXELS)] + [0.0] for _ in range(hidden)]
        self.w2 = [[rng.gauss(0, math.sqrt(2 / hidden)) for _ in range(hidden)] + [0.0] for _ in range(DIGITS)]

    def forward(self, x: Sequence[float]) -> Tuple[List[float], List[float]]:
        """Activations of the hidden units and the chance of each digit. ``x`` ends with 1, for the bias."""
        hidden = [max(0.0, sum(map(mul, w, x))) for w in self.w1]
        hidden.append(1.0)
        scores = [sum(map(mul, w, hidden)) for w in self.w2]
        top = max(scores)
        odds = [math.exp(s - top) for s in scores]
        total = sum(odds)
        return hidden, [o / total for o in odds]

    def train(self, batch: Sequence[Row], lr: float) -> float:
        """One step of gradient descent on the cross-entropy of a batch; its mean loss before the step."""
        xs = [pixels + [1.0] for pixels, _ in batch]
        hiddens, errors, loss = [], [], 0.0
        for x, (_, digit) in zip(xs, batch):
            hidden, chances = self.forward(x)
            loss -= math.log(max(chances[digit], 1e-300))
            chances[digit] -= 1.0
            hiddens.append(hidden)
            errors.append(chances)
        back = list(zip(*self.w2))  # the error of a hidden unit comes through its column
        deltas = [
            [sum(map(mul, column, error)) if h > 0 else 0.0 for column, h in zip(back, hidden[:-1])]
            for error, hidden in zip(errors, hiddens)
        ]
        rate = lr / len(batch)
        descend(self.w2, errors, hiddens, rate)
        descend(self.w1, deltas, xs, rate)
        return loss / len(batch)

    def accuracy(self, rows: Sequence[Row]) -> float:
        """Share of the rows whose likeliest digit is the right one."""
        right = 0
        for pixels, digit in rows:
            chances = self.forward(pixels + [1.0])[1]
            right += chances.index(max(chances)) == digit
        return right / len(rows)

    def state(self) -> Dict[str, Any]:
        return {"w1": self.w1, "w2": self.w2}

    def restore(self, state: Dict[str, Any]) -> None:
        self.w1, self.w2 = state["w1"], state["w2"]


def descend(weights: List[List[float]], deltas: List[List[float]], inputs: List[List[float]], rate: float) -> None:
    """Subtracts rate times the sum over the batch of delta times input, for every weight."""
    columns = list(zip(*inputs))
    for row, delta in zip(weights, zip(*deltas)):
        row[:] = [w - rate * sum(map(mul, delta, column)) for w, column in zip(row, columns)]


def write(path: str, state: Dict[str, Any]) -> None:
    """Whole or not at all: a name of its own while it is written. Floats come back bit for bit."""
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump(state, f)
    os.replace(path + ".part", path)


def load(path: str) -> Dict[str, Any]:
    with open(path, encoding="utf-8") as f:
        return json.load(f)
