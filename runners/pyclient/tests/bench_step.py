"""What a step costs the program: microseconds a call, and the share of a loop's time.

Started by the agent (HEADWAY_SOCKET is set) it measures against that agent and its store; started by hand, against the
fake one in a process of its own. ``--out FILE`` writes the numbers as JSON beside the table on standard output. Nothing
here fails for being slow: the targets are printed next to what was found. A step is *quiet* when the agent was told of
one a moment ago, *one way* when it is told, *asking* when the call waits for a verdict. Loops have the mix that they have.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from time import perf_counter_ns, thread_time_ns
from typing import Any, Callable, Dict, List, Tuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import headway as w  # noqa: E402


def quantile(values: List[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


class Bench:
    def __init__(self, run: w.Run) -> None:
        self.run, self.n = run, 0

    def step(self) -> None:
        self.n += 1
        self.run.step(self.n)

    def calls(self, count: int, kind: str) -> List[float]:
        """Microseconds of each call, with a pause of work between two so that the agent is as idle as it usually is."""
        conn, took = self.run._conn, []
        assert conn is not None
        for _ in range(count):
            spin(200)
            if kind != "quiet":
                self.run._next = 0
            if kind == "asking":
                conn.asked = True
            self.n += 1
            before = perf_counter_ns()
            self.run.step(self.n)
            took.append((perf_counter_ns() - before) / 1e3)
        return took

    def loop(self, rounds: int, steps: int, work: int) -> Dict[str, float]:
        """The same loop with and without us, in turns (ABBA), so that a noisy neighbour meets both alike. ``lost`` is
        what passed inside step(), ``paired`` the median of the differences between neighbours, which also has what
        we cost the work itself."""
        without, ratios, wall, cpu = [], [], [0, 0], [0, 0]
        for i in range(rounds):
            took = {}
            for us in ((False, True), (True, False))[i % 2]:
                took[us], inside = self.block(steps, work, us, perf_counter_ns)
                if us:
                    wall = [wall[0] + inside, wall[1] + took[us]]
            without.append(took[False])
            ratios.append(took[True] / took[False] - 1)
        for _ in range(rounds):  # again by the processor's clock, which leaves out what other programs took
            took[True], inside = self.block(steps, work, True, thread_time_ns)
            cpu = [cpu[0] + inside, cpu[1] + took[True]]
        return {
            "step_ms": statistics.median(without) / steps / 1e6,
            "lost": wall[0] / wall[1],
            "lost_cpu": cpu[0] / cpu[1],
            "paired": statistics.median(ratios),
            "noise": (quantile(ratios, 0.75) - quantile(ratios, 0.25)) / 2,
        }

    def block(self, steps: int, work: int, us: bool, clock: Callable[[], int]) -> Tuple[int, int]:
        """Nanoseconds of a block of steps, and those of them that passed inside step()."""
        within, floor = 0, min(clock_cost(clock) for _ in range(9))
        began = clock()
        for _ in range(steps):
            spin(work)
            before = clock()  # both loops carry the measurement
            if us:
                self.step()
            within += clock() - before
        return clock() - began, max(0, within - steps * floor)


def clock_cost(clock: Callable[[], int]) -> int:
    """Nanoseconds between two readings with nothing between them."""
    before = clock()
    return clock() - before


def spin(work: int) -> int:
    """Work of a fixed amount, never of a fixed time: what is lost must show."""
    x = 0
    for i in range(work):
        x ^= i
    return x


def calibrate(ms: float) -> int:
    """How much work takes about that long on this machine."""
    best = min(timed(lambda: spin(100_000)) for _ in range(20))
    return int(100_000 * ms * 1e6 / best)


def timed(call: Callable[[], Any]) -> int:
    before = perf_counter_ns()
    call()
    return perf_counter_ns() - before


def measure(run: w.Run, quick: bool) -> Dict[str, Any]:
    b, share = Bench(run), 10 if quick else 1
    b.calls(200, "asking")  # warm
    found: Dict[str, Any] = {}
    for name, count in (("quiet", 20000), ("one way", 20000), ("asking", 5000)):
        took = b.calls(count // share, name)
        found[name] = {"median_us": statistics.median(took), "p99_us": quantile(took, 0.99)}
    found["loop of 1 ms"] = b.loop(60 // share, 50, calibrate(1))
    found["loop of 10 ms"] = b.loop(30 // share, 10, calibrate(10))
    found["steps"] = b.n
    return found


def show(found: Dict[str, Any], against: str) -> None:
    print("Python step() against %s" % against)
    for name, target in (("quiet", 10), ("one way", 10), ("asking", 60)):
        v = found[name]
        print("  %-14s median %6.1f us   p99 %7.1f us   target: median under %d us" % (name, v["median_us"], v["p99_us"], target))
    for name, target in (("loop of 1 ms", 2.0), ("loop of 10 ms", 0.2)):
        v = found[name]
        print(
            "  %-14s lost %6.3f %% of the wall, %6.3f %% of the processor   same loop without: %+.2f %% (noise %.2f)   "
            "target: under %g %%"
            % (name, 100 * v["lost"], 100 * v["lost_cpu"], 100 * v["paired"], 100 * v["noise"], target)
        )
    sys.stdout.flush()


def serve(path: str) -> None:
    """The fake agent as a process of its own, until standard input ends."""
    from fake_agent import FakeAgent

    agent = FakeAgent(quiet_s=2.5)
    agent.path = path
    with agent:
        print("ready", flush=True)
        sys.stdin.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="file for the numbers, as JSON")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve)
    against, fake = "the agent", None
    if not os.environ.get("HEADWAY_SOCKET"):
        against = "a fake agent"
        path = os.path.join(tempfile.mkdtemp(prefix="hw"), "s")
        fake = subprocess.Popen([sys.executable, __file__, "--serve", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert fake.stdout is not None and fake.stdout.readline() == b"ready\n"
        os.environ["HEADWAY_SOCKET"] = path
    began = time.monotonic()
    with w.attach() as run:
        found = measure(run, args.quick)
        if fake is None:
            run.finish(one_way_us=found["one way"]["median_us"], asking_us=found["asking"]["median_us"])
    found["took_s"] = time.monotonic() - began
    if fake is not None:
        fake.communicate()
        shutil.rmtree(os.path.dirname(path))
    show(found, against)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump({"against": against, **found}, f, indent=1)


if __name__ == "__main__":
    main()
