"""What a training loop sees of a run."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from typing import Any, Dict, List
from unittest import mock

import headway as w
from headway import _run

from .fake_agent import FakeAgent, refusal


class TempFolder(unittest.TestCase):
    """Each test works in an empty folder of its own, with nothing of headway in the environment."""

    def setUp(self) -> None:
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="hw"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HEADWAY_", "RANK", "LOCAL_RANK", "OMPI_"))}
        patch = mock.patch.dict(os.environ, clean, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def file(self, name: str, text: str = "state") -> str:
        with open(name, "w", encoding="utf-8") as f:
            f.write(text)
        return name


class NoAgent(TempFolder):
    def test_the_same_script_runs_on_a_laptop(self) -> None:
        seen = []
        with w.attach() as run:
            self.assertIsNone(run.resume())
            for n in run.steps(0, 3):
                seen.append(n)
                run.note(loss=0.1)
                self.assertFalse(run.milestone_due())
            run.milestone(self.file("state"), 3, move=True)
            with run.phase("eval", expect="6m"):
                pass
            run.finish(accuracy=0.5)
            self.assertIsNone(run.stop)
        self.assertEqual(seen, [1, 2, 3])
        self.assertTrue(os.path.exists("state"))
        with open("result/metrics.json", encoding="utf-8") as f:
            self.assertEqual(json.load(f), {"accuracy": 0.5})

    def test_mistakes_show_without_an_agent_too(self) -> None:
        with w.attach() as run:
            run.step(2)
            with self.assertRaisesRegex(w.HeadwayError, r"step\(1\) after step\(2\)"):
                run.step(1)
            with self.assertRaises(TypeError):
                run.step(2.5)  # type: ignore[arg-type]
            with self.assertRaisesRegex(w.HeadwayError, "no such file"):
                run.milestone("missing", 2)

    def test_an_exception_passes_through(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with w.attach():
                1 / 0

    def test_an_agent_that_is_named_but_absent_is_no_laptop(self) -> None:
        os.environ["HEADWAY_SOCKET"] = os.path.join(self.folder, "nobody")
        with self.assertRaisesRegex(w.LeaseLost, "unset it"):
            w.attach()


class Steps(TempFolder):
    def test_quiet_steps_are_one_way(self) -> None:
        with FakeAgent() as agent:
            with w.attach() as run:
                self.assertEqual((run.work, run.attempt), ("ab" * 32, 2))
                for n in (1, 2, 2, 7):
                    run.step(n)
            steps = agent.heard("step")
        self.assertEqual([m["n"] for m in steps], [1, 2, 2, 7])
        self.assertEqual([m.get("ask") for m in steps], [None] * 4)

    def test_a_step_asks_when_the_quiet_time_is_over(self) -> None:
        now = 1000.0
        with mock.patch.object(_run, "monotonic", lambda: now), FakeAgent(quiet_s=5) as agent:
            with w.attach() as run:
                run.step(1)
                now += 4.9
                run.step(2)
                now += 0.2
                run.step(3)  # asks: 5.1 s since the hello
                now += 4.9
                run.step(4)
                now += 0.2
                run.step(5)
            asked = [m["n"] for m in agent.heard("step") if m.get("ask")]
        self.assertEqual(asked, [3, 5])

    def test_what_the_time_went_into_is_said_once(self) -> None:
        now = 1000.0
        with mock.patch.object(_run, "monotonic", lambda: now), FakeAgent(every_steps=3) as agent:
            with w.attach() as run:
                for n in run.steps(0, 5):
                    now += 1
                    with run.waiting():
                        now += 0.5 if n == 2 else 0
                    if run.milestone_due():
                        now += 2
                        run.milestone(self.file("state"), n)
            said = [{k: v for k, v in m.items() if k not in ("op", "ask")} for m in agent.heard("step")]
        want = [{"n": 1}, {"n": 2, "wait_s": 0.5}, {"n": 3, "save_s": 2}, {"n": 4}, {"n": 5}]
        self.assertEqual([m for m in said if m["n"] != 3 or "save_s" in m], want)

    def test_of_many_steps_few_are_said(self) -> None:
        now = 1000.0
        with mock.patch.object(_run, "monotonic", lambda: now), FakeAgent() as agent:
            with mock.patch.object(_run, "_SPARE", 1 / 8), w.attach() as run:
                for n in range(1, 100):  # 128 a second: one in 16 is said, and what comes before another word
                    now = 1000 + n / 128
                    run.step(n)
                    if n == 44:
                        run.note(loss=1)
                    if n == 55:
                        run.milestone(self.file("state"), 56)
                    if n == 66:
                        with run.phase("eval", expect=1):
                            pass
            agent.wait(lambda: agent._ended > 0)
            told = [m["op"] if m["op"] != "step" else m["n"] for m in agent.seen[1:]]
        self.assertEqual(told, [1, 17, 33, 44, "note", 49, 56, "milestone", 65, 66, "phase", "phase_end", 82, 98, 99,
                                "drain"])  # fmt: skip

    def test_mistakes_and_ends_show_between_two_words_too(self) -> None:
        with FakeAgent() as agent, mock.patch.object(_run, "_SPARE", 3600), w.attach() as run:
            run.step(5)
            with self.assertRaisesRegex(w.HeadwayError, "never go back"):
                run.step(4)
            with self.assertRaises(TypeError):
                run.step(6.5)  # type: ignore[arg-type]
            agent.replies["resume"] = refusal("revoked")
            with self.assertRaises(w.RunRevoked):
                run.resume()
            with self.assertRaises(w.RunRevoked):
                run.step(6)

    def test_the_last_step_is_said_at_the_end(self) -> None:
        for error in (None, ValueError("nan")):
            with FakeAgent() as agent, mock.patch.object(_run, "_SPARE", 3600):
                try:
                    with w.attach() as run:
                        for n in range(1, 8):
                            run.step(n)
                        if error:
                            raise error
                except ValueError:
                    pass
                self.assertEqual([m["n"] for m in agent.heard("step")], [1, 7])
                self.assertEqual(agent.seen[-1]["op"], "error" if error else "step")

    def test_a_push_makes_the_next_step_ask(self) -> None:
        with FakeAgent() as agent:
            with w.attach() as run:
                run.step(1)
                agent.push({"push": "ask"})
                run.step(2)
                run.step(3)
                agent.push({"push": "of a newer agent"})
                run.step(4)
            steps = agent.heard("step")
        self.assertEqual([m.get("ask", False) for m in steps], [False, True, False, False])

    def test_a_push_before_an_answer_is_not_lost(self) -> None:
        with FakeAgent() as agent:
            with w.attach() as run:
                agent.replies["phase"] = lambda m: agent.push({"push": "ask"}) or {"ok": True, "quiet_s": 9}
                with run.phase("eval", expect=1):
                    pass
                run.step(1)
            self.assertTrue(agent.heard("step")[0]["ask"])

    def test_answers_in_the_same_words_and_in_others(self) -> None:
        due: List[bool] = []
        with FakeAgent(quiet_s=0) as agent:
            with w.attach() as run:
                for n in range(1, 9):
                    if n in (3, 7):
                        agent.push({"push": "of a newer agent"})
                    agent.replies["step"] = {"ok": True, "quiet_s": 0, "due": n == 5, "stop": None}
                    run.step(n)
                    due.append(run._due)
                    run._due = False
                agent.replies["step"] = refusal("lease_lost")
                with self.assertRaises(w.LeaseLost):
                    run.step(9)
        self.assertEqual(due, [n == 5 for n in range(1, 9)])

    def test_the_lease_is_lost_on_the_asking_step(self) -> None:
        for code, kind in (("lease_lost", w.LeaseLost), ("revoked", w.RunRevoked)):
            with self.subTest(code), FakeAgent(quiet_s=0) as agent:
                agent.replies["step"] = refusal(code, "attempt 3 holds it")
                with self.assertRaisesRegex(kind, "attempt 3 holds it"):
                    with w.attach() as run:
                        self.loop_that_swallows(run)
                self.assertEqual(agent.heard("error") + agent.heard("drain"), [])

    def loop_that_swallows(self, run: w.Run) -> None:
        for n in (1, 2, 3):
            try:
                run.step(n)
            except Exception:
                self.fail("a broad except must not see the end of the lease")

    def test_once_lost_for_ever_lost(self) -> None:
        with FakeAgent(quiet_s=0) as agent:
            agent.replies["step"] = refusal("lease_lost")
            run = w.attach()
            for _ in range(2):
                with self.assertRaises(w.LeaseLost):
                    run.step(1)
            with self.assertRaises(w.LeaseLost):
                run.note(loss=1)
            with self.assertRaises(w.LeaseLost):
                run.milestone(self.file("state"), 1)
            run.close()

    def test_an_agent_that_dies_takes_the_lease_along(self) -> None:
        with FakeAgent() as agent:
            with self.assertRaises(w.LeaseLost):
                with w.attach() as run:
                    run.step(1)
                    agent.hang_up()
                    run.step(2)

    def test_the_reason_is_read_even_when_sending_fails_first(self) -> None:
        with FakeAgent() as agent:
            with self.assertRaisesRegex(w.RunRevoked, "an operator"):
                with w.attach() as run:
                    run.step(1)
                    agent.push(refusal("revoked", "an operator"))
                    agent.hang_up()
                    run.milestone(self.file("state"), 1)

    def test_garbage_of_the_agent_is_refused(self) -> None:
        for line in (b"oops\n", b"[]\n", b'{"quiet_s":1}\n', b'{"ok":true} {}\n', b"\xff\n", b"[" * 60000 + b"\n", b"x" * 200000):
            with self.subTest(line[:10]), FakeAgent() as agent:
                with w.attach() as run:
                    sender = threading.Thread(target=agent.send_raw, args=(line,))
                    sender.start()
                    with self.assertRaises(w.HeadwayError) as caught:
                        while True:
                            run.step(1)
                    self.assertEqual(caught.exception.code, "protocol")
                    agent.hang_up()
                    sender.join()
                    run._over = caught.exception  # the stream is in pieces: no drain

    def test_refused_hello(self) -> None:
        with FakeAgent() as agent:
            for code in ("protocol", "not_loop"):
                agent.replies["hello"] = refusal(code)
                with self.assertRaises(w.HeadwayError) as caught:
                    w.attach()
                self.assertEqual(caught.exception.code, code)


class Milestones(TempFolder):
    def test_due_by_steps(self) -> None:
        due: List[int] = []
        with FakeAgent(every_steps=10) as agent:
            with w.attach() as run:
                for n in run.steps(0, 35):
                    if run.milestone_due():
                        due.append(n)
                        run.milestone(self.file("state"), n)
            sent = agent.heard("milestone")
            steps = [m["n"] for m in agent.heard("step")]
        self.assertEqual(due, [10, 20, 30])
        self.assertEqual([m["step"] for m in sent], due)
        self.assertEqual(sent[0]["path"], os.path.realpath("state"))
        self.assertEqual(sorted(set(steps)), list(range(1, 36)))
        self.assertEqual(steps, sorted(steps))

    def test_due_falls_on_the_same_steps_after_a_resume(self) -> None:
        with FakeAgent(every_steps=10, resume=self.folder, resume_step=20):
            with w.attach() as run:
                at = run.resume()
                self.assertEqual(at, w.Resume(self.folder, 20, 4))
                due = [n for n in run.steps(20, 31) if run.milestone_due()]
        self.assertEqual(due, [30, 31])

    def test_due_by_time(self) -> None:
        now = 0.0
        with mock.patch.object(_run, "monotonic", lambda: now), FakeAgent(every_s=60):
            with w.attach() as run:
                run.step(1)
                self.assertFalse(run.milestone_due())
                now += 60
                self.assertTrue(run.milestone_due())
                run.milestone(self.file("state"), 1)
                self.assertFalse(run.milestone_due())

    def test_due_when_the_agent_says_so(self) -> None:
        with FakeAgent() as agent:
            with w.attach() as run:
                agent.replies["step"] = {"ok": True, "quiet_s": 9, "due": True, "stop": None}
                agent.push({"push": "ask"})
                run.step(1)
                self.assertTrue(run.milestone_due())
                run.milestone(self.file("state"), 1)
                self.assertFalse(run.milestone_due())

    def test_moved_and_copied(self) -> None:
        with FakeAgent() as agent:
            with w.attach() as run:
                run.milestone(self.file("kept"), 1)
                os.mkdir("folder")
                self.file("folder/given")
                run.milestone("folder", 2, move=True)
            self.assertEqual([os.listdir(k) for k in agent.kept], [["kept"], ["given"]])
            self.assertEqual(len(agent.heard("drain")), 1)
        self.assertEqual(os.listdir("."), ["kept"])

    def test_a_full_disk_is_the_callers_to_answer(self) -> None:
        with FakeAgent() as agent:
            agent.replies["milestone"] = refusal("disk_full", "no space for a copy of 3 GB")
            with w.attach() as run:
                with self.assertRaises(w.HeadwayError) as caught:
                    run.milestone(self.file("state"), 1)
                self.assertEqual(caught.exception.code, "disk_full")
                run.step(2)

    def test_a_milestone_that_failed_late_is_a_warning(self) -> None:
        with FakeAgent() as agent, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            agent.replies["drain"] = refusal("internal", "milestone 1 was not uploaded")
            with w.attach() as run:
                run.milestone(self.file("state"), 1)
        self.assertIn("milestone 1 was not uploaded", str(caught[0].message))

    def test_yield_saves_once_and_leaves(self) -> None:
        done: List[int] = []
        with FakeAgent() as agent:
            with self.assertRaises(SystemExit) as caught:
                with w.attach() as run:
                    for n in run.steps(0, 100):
                        if n == 3:
                            agent.replies["step"] = {"ok": True, "quiet_s": 0, "due": True, "stop": "yield"}
                            agent.push({"push": "ask"})
                        if run.milestone_due():
                            run.milestone(self.file("state"), n)
                        done.append(n)
            self.assertIsInstance(caught.exception, w.RunYielded)
            self.assertEqual(caught.exception.code, 75)
            self.assertEqual([m["step"] for m in agent.heard("milestone")], [4])
            self.assertEqual(len(agent.heard("drain")), 1)
        self.assertEqual(done, [1, 2, 3, 4])

    def test_yield_of_a_program_without_milestones_is_at_once(self) -> None:
        with FakeAgent(quiet_s=0) as agent:
            agent.replies["step"] = {"ok": True, "quiet_s": 0, "due": True, "stop": "yield"}
            with self.assertRaises(w.RunYielded):
                with w.attach() as run:
                    run.step(1)


class Words(TempFolder):
    def test_notes(self) -> None:
        class Tensor:
            def __float__(self) -> float:
                return 0.25

        with FakeAgent() as agent:
            with w.attach() as run:
                run.note(loss=Tensor(), n=3, bad=math.nan, split="train", long="x" * 5000, flag=True, big=2**80)
                run.note(thing=object)
            values = [m["values"] for m in agent.heard("note")]
        want: Dict[str, Any] = {"loss": 0.25, "n": 3, "bad": "nan", "split": "train", "long": "x" * 1000, "flag": 1,
                                "big": float(2**80)}  # fmt: skip
        self.assertEqual(values, [want, {"thing": "<class 'object'>"}])

    def test_notes_are_dropped_rather_than_waited_for(self) -> None:
        deaf = socket.socket(socket.AF_UNIX)
        self.addCleanup(deaf.close)
        path = os.path.join(self.folder, "deaf")
        deaf.bind(path)
        deaf.listen()
        conn = w._run._wire.Conn(path)
        agent, _ = deaf.accept()
        run = w.Run(conn, {"quiet_s": 3600})
        for n in range(3000):  # far more than any socket holds
            run.note(text="x" * 1000, n=n)
        def step() -> None:
            run._thread = threading.get_ident()  # this thread drives it now
            run.step(7)

        got = threading.Thread(target=step)
        got.start()  # waits until somebody reads
        lines = agent.makefile("rb")
        last: Dict[str, Any] = {}
        count = 0
        while last.get("op") != "step":
            last = json.loads(lines.readline())  # each is whole: no half note before the step
            count += 1
        got.join()
        self.assertLess(count, 3000)
        self.assertEqual(last["n"], 7)
        for s in (lines, agent):
            s.close()
        run._over = w.LeaseLost()
        run.close()

    def test_a_note_that_was_sent_in_part_is_completed_before_anything_else(self) -> None:
        class Narrow:
            """A socket that has room for five bytes."""

            def __init__(self) -> None:
                self.got = b""

            def send(self, line: bytes, flags: int) -> int:
                self.got += line[:5]
                return 5

            def sendall(self, line: bytes) -> None:
                self.got += line

        conn = object.__new__(w._run._wire.Conn)
        conn._sock, conn._late = Narrow(), b""  # type: ignore[assignment]
        self.assertTrue(conn.offer(b"first note\n"))
        self.assertFalse(conn.offer(b"second note\n"), "dropped: the first is not out yet")
        conn.send(b"step\n")
        self.assertEqual(conn._sock.got, b"first note\nstep\n")  # type: ignore[attr-defined]

    def test_phases_nest(self) -> None:
        with FakeAgent() as agent:
            with w.attach() as run:
                with run.phase("eval", expect="6m"):
                    with run.phase("save", expect=2):
                        pass
            seen = [(m["op"], m.get("name"), m.get("expect_s")) for m in agent.heard("phase") + agent.heard("phase_end")]
        self.assertEqual(seen, [("phase", "eval", 360), ("phase", "save", 2), ("phase", "eval", 360),
                                ("phase_end", None, None)])  # fmt: skip

    def test_durations(self) -> None:
        for text, want in (("90s", 90), ("6m", 360), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), (7, 7)):
            self.assertEqual(_run.seconds(text), want)
        for bad in ("", "6", "6 m", "m", "-1s", "2d", 0, -1, math.nan, math.inf):
            with self.assertRaises(w.HeadwayError):
                _run.seconds(bad)

    def test_last_words_are_bounded_and_end_with_the_error(self) -> None:
        for text in ("short", "\x00" * 50000, "é" * 50000, "\U0001f600" * 50000, "\ud800" * 50000):
            with self.subTest(text[:1]), FakeAgent() as agent:
                with self.assertRaises(ValueError):
                    with w.attach():
                        raise ValueError(text + "the end")
                (message,) = agent.heard("error")
                self.assertTrue(message["text"].rstrip().endswith("the end"))
                self.assertLess(len(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")), 64 * 1024)
                if text == "short":
                    self.assertIn("raise ValueError", message["text"])

    def test_exits_that_are_no_errors(self) -> None:
        for error in (SystemExit(3), KeyboardInterrupt()):
            with self.subTest(repr(error)), FakeAgent() as agent:
                with self.assertRaises(type(error)):
                    with w.attach():
                        raise error
                self.assertEqual(agent.heard("error"), [])

    def test_an_agent_that_is_gone_does_not_hide_the_programs_error(self) -> None:
        with FakeAgent() as agent:
            with self.assertRaises(ZeroDivisionError):
                with w.attach():
                    agent.hang_up()
                    1 / 0

    def test_after_the_block_nothing_works(self) -> None:
        with FakeAgent():
            with w.attach() as run:
                run.step(1)
            with self.assertRaisesRegex(w.HeadwayError, "has ended"):
                run.step(2)


class Guards(TempFolder):
    def test_a_forked_child_does_nothing(self) -> None:
        with FakeAgent(every_steps=1) as agent:
            with w.attach() as run:
                run.step(1)
                self.assertTrue(run.milestone_due())
                pid = os.fork()
                if pid == 0:
                    code = 1
                    try:
                        run.step(99)
                        run.note(loss=1)
                        run.milestone("missing", 99)
                        run.finish(accuracy=1)
                        with run.phase("eval", expect=1):
                            pass
                        run.close()
                        code = 0 if run.resume() is None and not run.milestone_due() else 2
                    finally:
                        os._exit(code)
                self.assertEqual(os.waitpid(pid, 0)[1], 0)
                run.step(2)
            self.assertEqual([m["n"] for m in agent.heard("step")], [1, 2])
            self.assertEqual(agent.heard("phase"), [])
        self.assertFalse(os.path.exists("result"))

    def test_another_thread_is_refused(self) -> None:
        with FakeAgent() as agent:
            with w.attach() as run:
                caught: List[BaseException] = []

                def beat() -> None:
                    for call in (lambda: run.step(1), lambda: run.note(a=1), lambda: run.resume()):
                        try:
                            call()
                        except w.HeadwayError as err:
                            caught.append(err)

                side = threading.Thread(target=beat)
                side.start()
                side.join()
                self.assertEqual([e.code for e in caught], ["usage"] * 3)  # type: ignore[attr-defined]
            self.assertEqual(agent.heard("step"), [])

    def test_other_ranks_only_listen(self) -> None:
        for name in ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK"):
            with self.subTest(name), FakeAgent() as agent, mock.patch.dict(os.environ, {name: "1"}):
                os.environ["HEADWAY_RESUME"], os.environ["HEADWAY_RESUME_STEP"] = self.folder, "40"
                with w.attach() as run:
                    self.assertEqual(run.resume(), w.Resume(self.folder, 40))
                    run.step(1)
                    run.note(loss=1)
                    run.finish(accuracy=1)
                    run.milestone(self.file("state"), 1)
                    self.assertFalse(run.milestone_due())
                    agent.wait(lambda: agent._loop is not None)
                    agent.hang_up()
                    with self.assertRaises(w.LeaseLost):
                        run.step(2)
                self.assertEqual(agent.seen, [])

    def test_rank_zero_leads(self) -> None:
        with FakeAgent() as agent, mock.patch.dict(os.environ, {"RANK": "0", "LOCAL_RANK": "3"}):
            with w.attach() as run:
                run.step(1)
            self.assertEqual(len(agent.heard("hello")), 1)


class Result(TempFolder):
    def test_metrics_lie_in_the_folder_that_the_agent_names(self) -> None:
        os.environ["HEADWAY_RESULT"] = os.path.join(self.folder, "out")
        with w.attach() as run:
            self.assertEqual(run.result_dir, os.path.join(self.folder, "out"))
            run.finish(b=1, a=0.5)
        with open("out/metrics.json", encoding="utf-8") as f:
            self.assertEqual(list(json.load(f).items()), [("a", 0.5), ("b", 1)])
        self.assertEqual(os.listdir("out"), ["metrics.json"])

    def test_a_metric_is_a_finite_number(self) -> None:
        with w.attach() as run:
            for bad in (math.nan, math.inf, "0.5x"):
                with self.assertRaisesRegex(w.HeadwayError, "finite number"):
                    run.finish(accuracy=bad)  # type: ignore[arg-type]


class Over(unittest.TestCase):
    def test_a_run_that_is_over_ends_with_a_sentence_and_no_traceback(self) -> None:
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        code = "import headway as w\ntry:\n raise w.RunRevoked('a person stopped it')\nexcept Exception:\n print('eaten')"
        done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", "a person stopped it\n"))


class Killed(TempFolder):
    def test_a_sigterm_is_the_programs_own_business(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        with FakeAgent(), w.attach():
            self.assertIs(signal.getsignal(signal.SIGTERM), before)


if __name__ == "__main__":
    unittest.main()
