"""The vectors that the Go side reads too: what the client sends must be lines that the agent accepts, and it must
understand, or refuse, every line of the agent."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import unittest
from typing import Any, Dict, List

import headway as w
from headway import _wire

from .fake_agent import FakeAgent

VECTORS = os.path.join(os.path.dirname(__file__), "..", "..", "witness", "testdata", "vectors")


def vectors(name: str) -> Dict[str, Any]:
    with open(os.path.join(VECTORS, name), encoding="utf-8") as f:
        return json.load(f)


def cases(name: str) -> List[Dict[str, Any]]:
    return vectors(name)["cases"]


def shape(line: str) -> Any:
    """An op, its fields and their JSON types: what a line must have in common with a vector of its op."""
    message = json.loads(line)
    kinds = {bool: "bool", int: "number", float: "number", str: "text", dict: "object"}
    return message["op"], tuple(sorted((k, kinds[type(v)]) for k, v in message.items()))


class FromAgent(unittest.TestCase):
    def conn(self, line: str) -> _wire.Conn:
        """A connection whose agent has answered with that line, whatever is asked."""
        path = os.path.join(self.folder, "s")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            conn = _wire.Conn(path)
            agent, _ = server.accept()
        os.remove(path)
        self.addCleanup(agent.close)
        self.addCleanup(conn.close)
        agent.sendall(line.encode() + b"\n")
        return conn

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="hw")
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def test_every_line_of_the_agent(self) -> None:
        codes = {"lease_lost": w.LeaseLost, "revoked": w.RunRevoked}
        seen = 0
        for case in cases("socket.json"):
            if case["from"] != "agent":
                continue
            seen += 1
            with self.subTest(case["name"]):
                conn = self.conn(case["line"])
                if case["expect"] == "refuse":
                    with self.assertRaises(w.HeadwayError) as caught:
                        conn.ask(b"")
                    self.assertEqual(caught.exception.code, "protocol")
                elif case["to"] == "push":
                    conn.listen()
                    self.assertTrue(conn.asked)
                elif json.loads(case["line"])["ok"]:
                    self.accepted(case["to"], conn.ask(b""))
                else:
                    code = json.loads(case["line"])["error"]
                    with self.assertRaises(codes.get(code, w.HeadwayError)) as refused:
                        conn.ask(b"")
                    if isinstance(refused.exception, w.HeadwayError):
                        self.assertEqual(refused.exception.code, code)
        self.assertGreater(seen, 15)

    def accepted(self, op: str, answer: Dict[str, Any]) -> None:
        """The run reads what the answer to its op says."""
        if op == "hello":
            run = w.Run(None, answer)
            self.assertEqual((run.work, run.attempt), (answer["work"], answer["attempt"]))
            self.assertEqual((run._every_steps, run._every_s), (answer["every_steps"], answer["every_s"]))
            return
        with FakeAgent() as agent:
            agent.replies[op] = answer
            with w.attach() as run:
                if op == "resume":
                    want = answer["path"] and w.Resume(answer["path"], answer["step"], answer["milestone"])
                    self.assertEqual(run.resume(), want)
                elif op == "step":
                    agent.push({"push": "ask"})
                    run.milestone(VECTORS, 0)  # one that minds milestones, so that a stop is not raised at once
                    run.step(1)
                    self.assertEqual(run.stop, answer["stop"])
                    self.assertEqual(run.milestone_due(), answer["due"])
                elif op == "milestone":
                    run.milestone(VECTORS, 0)
                else:  # phase, phase_end, drain
                    with run.phase("eval", expect=1):
                        pass


class FromClient(unittest.TestCase):
    def test_what_we_say_has_the_shape_of_an_accepted_line(self) -> None:
        vectors = [c for c in cases("socket.json") if c["from"] == "client"]
        good = {shape(c["line"]) for c in vectors if c["expect"] == "accept"}
        with FakeAgent() as agent:
            with w.attach() as run:
                run.resume()
                run.step(1)
                agent.push({"push": "ask"})
                run.step(2)
                run.milestone(VECTORS, 2)
                run.note(loss=0.5, split="train")
                with run.phase("eval", expect="10m"):
                    pass
            with self.assertRaises(ValueError):
                with w.attach():
                    raise ValueError("nan")
            agent.wait(lambda: agent._ended == 2)
            said = [json.dumps(m) for m in agent.seen]
        for line in said:
            self.assertIn(shape(line), good, line)
        self.assertEqual({json.loads(s)["op"] for s in said}, {g[0] for g in good}, "an op that the client never sends")

    def test_hand_built_lines_are_what_an_encoder_would_write(self) -> None:
        for n in (0, 1, 2**53):
            self.assertEqual(_wire.encode({"op": "step", "n": n}), b'{"op":"step","n":%d}\n' % n)
            self.assertEqual(_wire.encode({"op": "step", "n": n, "ask": True}), b'{"op":"step","n":%d,"ask":true}\n' % n)


class Records(unittest.TestCase):
    """Python holds no lease; what it can check is that the shared files say the same to both languages."""

    def test_records_and_transitions_are_read_alike(self) -> None:
        for name, fields in (("records.json", ("name", "expect")), ("transitions.json", ("name", "expect"))):
            names = [c["name"] for c in cases(name)]
            self.assertEqual(len(names), len(set(names)))
            for case in cases(name):
                self.assertIn(case["expect"], ("accept", "refuse"))
                for field in fields:
                    self.assertTrue(case[field])

    def test_accepted_transitions_keep_the_invariants(self) -> None:
        for case in cases("transitions.json"):
            old, new = case["old"], case["new"]
            if case["expect"] != "accept" or not old or not new:
                continue
            with self.subTest(case["name"]):
                self.assertEqual(new["rev"], old["rev"] + 1)
                self.assertGreaterEqual(new["attempt"], old["attempt"])
                self.assertGreaterEqual(new["floor"], old["floor"])
                self.assertNotEqual(old["state"], "finished")
                before, after = old.get("resume"), new.get("resume")
                if before:
                    self.assertGreaterEqual((after["attempt"], after["milestone"]),
                                            (before["attempt"], before["milestone"]))  # fmt: skip


if __name__ == "__main__":
    unittest.main()
