"""The example keeps what its README says: killed at any milestone, it ends with the same bits."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Dict, List

HERE = os.path.dirname(os.path.abspath(__file__))
CODE = os.path.join(HERE, "..", "digits")
CLIENT = os.path.join(HERE, "..", "..", "..", "runners", "pyclient")
sys.path[:0] = [CLIENT, CODE]

import net  # noqa: E402
from tests.fake_agent import FakeAgent  # noqa: E402

SMALL = ["--steps", "45", "--hidden", "6", "--batch", "4", "--seed", "3"]


class Digits(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="hw")
        self.addCleanup(shutil.rmtree, self.folder)

    def run_program(self, program: str, *args: str, **env: str) -> str:
        """Runs it in a new folder, as the agent would; its output."""
        cwd = tempfile.mkdtemp(dir=self.folder)
        done = subprocess.run(
            [sys.executable, os.path.join(CODE, program), *args],
            cwd=cwd, env={**os.environ, "PYTHONPATH": CLIENT, "PYTHONDONTWRITEBYTECODE": "1", **env},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def result(self, name: str) -> str:
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path

    def files(self, folder: str) -> Dict[str, bytes]:
        found = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as f:
                found[name] = f.read()
        return found

    def test_resumed_at_any_milestone_it_ends_with_the_same_bits(self) -> None:
        whole = self.result("whole")
        with FakeAgent(every_steps=10) as agent:
            out = self.run_program("train.py", *SMALL, HEADWAY_RESULT=whole)
            self.assertNotIn("resumed", out)
            kept = [shutil.copytree(k, os.path.join(self.folder, os.path.basename(k))) for k in agent.kept]
            self.assertEqual([m["step"] for m in agent.heard("milestone")], [10, 20, 30, 40])
        want = self.files(whole)
        self.assertEqual(list(want), ["metrics.json", "model.json"])
        for i, milestone in enumerate(kept):
            with self.subTest(milestone=10 * (i + 1)):
                part = self.result("part%d" % i)
                with FakeAgent(every_steps=10, resume=milestone, resume_step=10 * (i + 1)) as agent:
                    out = self.run_program("train.py", *SMALL, HEADWAY_RESULT=part)
                    steps = {m["n"] for m in agent.heard("step")}
                self.assertIn("resumed at step %d\n" % (10 * (i + 1)), out)
                self.assertEqual((min(steps), max(steps)), (10 * (i + 1) + 1, 45))
                self.assertEqual(self.files(part), want)

    def test_without_an_agent_it_ends_with_the_same_bits_too(self) -> None:
        alone, watched = self.result("alone"), self.result("watched")
        self.run_program("train.py", *SMALL, HEADWAY_RESULT=alone)
        with FakeAgent(every_steps=10):
            self.run_program("train.py", *SMALL, HEADWAY_RESULT=watched)
        self.assertEqual(self.files(alone), self.files(watched))

    def test_another_seed_gives_another_model(self) -> None:
        one, two = self.result("one"), self.result("two")
        self.run_program("train.py", *SMALL[:-1], "3", HEADWAY_RESULT=one)
        self.run_program("train.py", *SMALL[:-1], "4", HEADWAY_RESULT=two)
        self.assertNotEqual(self.files(one)["model.json"], self.files(two)["model.json"])

    def test_it_learns_and_the_backtest_scores_it(self) -> None:
        trained, scored = self.result("trained"), self.result("scored")
        out = self.run_program("train.py", "--steps", "400", "--lr", "0.3", HEADWAY_RESULT=trained)
        accuracy = json.loads(self.files(trained)["metrics.json"])["val_accuracy"]
        self.assertGreater(accuracy, 0.9)
        self.assertIn("validation accuracy %.4f" % accuracy, out)
        self.run_program("backtest.py", "--model", trained, HEADWAY_RESULT=scored)
        score = json.loads(self.files(scored)["metrics.json"])
        self.assertEqual(list(score), ["accuracy"])
        self.assertGreater(score["accuracy"], 0.88)


class Data(unittest.TestCase):
    def test_the_split_is_whole_disjoint_and_by_seed(self) -> None:
        parts = net.read(7)
        self.assertEqual([len(p) for p in parts], [1257, 270, 270])
        rows: List[str] = sorted(repr(r) for part in parts for r in part)
        self.assertEqual(rows, sorted(repr(r) for part in net.read(8) for r in part))
        self.assertNotEqual(parts[2], net.read(8)[2])
        self.assertEqual({digit for _, digit in parts[2]}, set(range(10)))
        self.assertTrue(all(len(x) == 64 and 0 <= min(x) and max(x) <= 1 for x, _ in parts[0]))

    def test_the_step_goes_down_the_gradient(self) -> None:
        """The update of every tenth weight against a central difference of the loss."""
        rng = random.Random(1)
        model, batch = net.Net(5, rng), rng.sample(net.read(1)[0], 6)

        def loss() -> float:
            return sum(-math.log(model.forward(x + [1.0])[1][d]) for x, d in batch) / len(batch)

        before = [row[:] for row in model.w1 + model.w2]
        slopes = []
        for row in model.w1 + model.w2:
            for i in range(0, len(row), 10):
                keep, ends = row[i], []
                for bump in (1e-5, -1e-5):
                    row[i] = keep + bump
                    ends.append(loss())
                row[i] = keep
                slopes.append((ends[0] - ends[1]) / 2e-5)
        self.assertAlmostEqual(model.train(batch, lr=1.0), loss_of(before, batch, model), places=12)
        moved = [b[i] - a[i] for b, a in zip(before, model.w1 + model.w2) for i in range(0, len(a), 10)]
        for slope, move in zip(slopes, moved):
            self.assertAlmostEqual(slope, move, places=6)


def loss_of(rows: List[List[float]], batch: List[net.Row], model: net.Net) -> float:
    """The mean loss of a model with these weights."""
    other = net.Net(1, random.Random(0))
    other.w1, other.w2 = rows[: len(model.w1)], rows[len(model.w1) :]
    return sum(-math.log(other.forward(x + [1.0])[1][d]) for x, d in batch) / len(batch)


if __name__ == "__main__":
    unittest.main()
