"""An agent that speaks the protocol and remembers what it heard. It has no store and no lease: tests say what it answers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
from typing import Any, Callable, Dict, List, Optional, Union

from headway import _run

Message = Dict[str, Any]
Reply = Union[Message, Callable[[Message], Optional[Message]], None]

DEADLINE = 30.0  # seconds that a test waits for a fact before it fails


def refusal(code: str, text: str = "because the test says so") -> Message:
    return {"ok": False, "error": code, "text": text}


class FakeAgent:
    """Within ``with``, clients of this process say every step, so that tests need not wait. ``replies`` maps an op to its answer; a refusal with lease_lost or revoked also hangs up, as the agent does.
    Milestones are kept in ``kept``, a folder each, in the order of arrival."""

    def __init__(self, quiet_s: float = 3600, every_steps: int = 0, every_s: float = 0, resume: Optional[str] = None,
                 resume_step: int = 0) -> None:  # fmt: skip
        self.folder = tempfile.mkdtemp(prefix="hw")
        self.path = os.path.join(self.folder, "s")
        self.seen: List[Message] = []
        self.kept: List[str] = []
        self._news = threading.Condition()
        self._loop: Optional[socket.socket] = None
        self._ended = 0
        self.replies: Dict[str, Reply] = {
            "hello": {"ok": True, "protocol": 1, "work": "ab" * 32, "attempt": 2, "every_steps": every_steps,
                      "every_s": every_s, "quiet_s": quiet_s},
            "resume": {"ok": True, "path": resume, "step": resume_step, "milestone": 4 if resume else 0},
            "step": {"ok": True, "quiet_s": quiet_s, "due": False, "stop": None},
            "milestone": self._keep,
            "phase": {"ok": True, "quiet_s": quiet_s},
            "phase_end": {"ok": True, "quiet_s": quiet_s},
            "drain": {"ok": True, "milestone": 0},
        }  # fmt: skip

    def __enter__(self) -> "FakeAgent":
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(self.path)
        self._server.listen()
        self._old = {k: os.environ.pop(k) for k in list(os.environ) if k.startswith(("HEADWAY_", "RANK"))}
        os.environ["HEADWAY_SOCKET"] = self.path
        self._spare, _run._SPARE = _run._SPARE, 0
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        os.environ.pop("HEADWAY_SOCKET", None)
        os.environ.update(self._old)
        _run._SPARE = self._spare
        self._server.close()
        self.hang_up()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- what tests do --------------------------------------------------------------------------------------------

    def push(self, message: Message) -> None:
        """Readable at the other end when this returns."""
        assert self._loop is not None
        self._loop.sendall(json.dumps(message).encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        assert self._loop is not None
        self._loop.sendall(data)

    def hang_up(self) -> None:
        if self._loop is not None:
            try:
                self._loop.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has gone by itself

    def heard(self, op: str) -> List[Message]:
        """What arrived of one op, once every connection so far has ended."""
        with self._news:
            if not self._news.wait_for(lambda: self._ended > 0, DEADLINE):
                raise AssertionError("no connection has ended: %r" % self.seen)
            return [m for m in self.seen if m.get("op") == op]

    def wait(self, fact: Callable[[], bool]) -> None:
        with self._news:
            if not self._news.wait_for(fact, DEADLINE):
                raise AssertionError("waited in vain; heard %r" % self.seen)

    # ---- the server -----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._server.accept()
            except OSError:
                return  # the test is over
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn: socket.socket) -> None:
        with self._news:
            self._loop = conn
            self._news.notify_all()
        try:
            with conn, conn.makefile("rb") as lines:
                for line in lines:
                    answer = self._handle(json.loads(line))
                    if answer is not None:
                        conn.sendall(json.dumps(answer).encode() + b"\n")
                        if answer.get("error") in ("lease_lost", "revoked", "protocol"):
                            return
        except OSError:
            pass  # the test hung up
        finally:
            with self._news:
                self._ended += 1
                self._news.notify_all()

    def _handle(self, message: Message) -> Optional[Message]:
        with self._news:
            self.seen.append(message)
            self._news.notify_all()
        op = message.get("op", "")
        if op in ("note", "error") or (op == "step" and not message.get("ask")):
            return None
        reply = self.replies.get(op, refusal("bad_request", "unknown op"))
        return reply(message) if callable(reply) else reply

    def _keep(self, message: Message) -> Message:
        n = len(self.kept) + 1
        folder = os.path.join(self.folder, "milestone-%d" % n)
        path = message["path"]
        if os.path.isdir(path):
            shutil.copytree(path, folder)
        else:
            os.mkdir(folder)
            shutil.copy(path, folder)
        if message["move"]:
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        self.kept.append(folder)
        return {"ok": True, "milestone": n}
