"""A run: what a training loop holds in its hand."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import traceback
import warnings
from dataclasses import dataclass
from operator import index
from os import getpid
from threading import get_ident
from time import monotonic
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Tuple, Type, Union

from . import _wire
from ._errors import HeadwayError, RunOver, RunYielded

_SPARE = 0.25  # seconds between two one-way steps: more often says nothing more, and each wakes the agent
_MAX_ERROR = 10_000  # characters of a traceback that are kept, from its end; six bytes each at worst fit a line
_MAX_TEXT = 1000  # characters of a noted text
_MAX_PHASE = 86400.0  # seconds
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Resume:
    """A verified snapshot to go on from."""

    path: str  #: folder that holds what was handed to ``milestone``
    step: int  #: steps that were finished when it was taken
    milestone: int = 0  #: its number in the attempt that made it


class Run:
    """What ``attach`` returns. Every method is harmless without an agent, in forked children, and on ranks but 0.

    One thread drives it, the one that attached: a lease that a side thread could renew would prove nothing.
    """

    def __init__(self, conn: Optional[_wire.Conn], hello: Optional[_wire.Message] = None, lead: bool = True) -> None:
        hello = hello or {}
        self._conn = conn
        self._pid, self._thread = getpid(), get_ident()
        self._lead = lead  # False: another rank of the same run leads, this one only listens
        self._over: Optional[BaseException] = None
        self._n = self._said = 0  # steps finished, and those of them that the agent knows of
        self._at = monotonic()  # when the last of them ended
        self._next = 0.0  # when it is to hear of the next one
        self._doing = 0  # step that the body of steps() is in
        self._saved, self._saved_at = 0, monotonic()  # step and time of the last milestone
        self._due = False
        self._minds_due = False  # the program has asked for, or made, a milestone
        self._stop: Optional[str] = None
        self._left = False  # a milestone was handed over since the stop
        self._phases: List[Tuple[str, float]] = []
        self._waited = self._saving = 0.0  # seconds since the last line that went into waiting for data, into a snapshot
        self._saving_since, self._saving_at = 0.0, -1  # a milestone was wanted then, after that step
        self._resume: Optional[Resume] = None
        self._resumed = False
        self._every_steps = int(_wire.number(hello, "every_steps", 0))
        self._every_s = _wire.number(hello, "every_s", 0)
        self._quiet_until = monotonic() + _wire.number(hello, "quiet_s", 0)
        self.work: Optional[str] = hello.get("work", os.environ.get("HEADWAY_WORK"))
        self.attempt: int = int(_wire.number(hello, "attempt", 0))

    # ---- the loop -------------------------------------------------------------------------------------------------

    def step(self, n: int) -> None:
        """``n`` steps are finished by now: call it after every optimizer update. Returns within a microsecond, but for
        the one call in many that tells the agent, and the one among those that waits for a verdict.

        Raises LeaseLost or RunRevoked when the run is over, RunYielded when the place was wanted back and a milestone
        has been handed over since.
        """
        now = monotonic()
        if n > self._n and type(n) is int and now < self._next:
            self._n, self._at = n, now  # all that happens in most calls: nothing that could matter to a wrong process or thread
            return
        if self._pid != getpid():
            return
        if self._thread != get_ident():
            raise _other_thread()
        n = index(n)
        if n < self._n:
            raise HeadwayError("usage", "step(%d) after step(%d): steps never go back" % (n, self._n))
        self._tell(n)
        if self._stop is not None and (self._left or not self._minds_due):
            raise RunYielded()

    def steps(self, start: int, total: int) -> Iterator[int]:
        """``for n in run.steps(start, total)``: n runs from ``start + 1`` to ``total``, and ``step(n)`` is called
        when the body is done with it. ``start`` is the number of steps that were finished before."""
        for n in range(start + 1, total + 1):
            self._doing = n
            yield n
            self.step(n)

    def _tell(self, n: int) -> None:
        if self._over is not None:
            raise self._again()
        conn, now = self._conn, monotonic()
        if n > self._n:
            self._n, self._at = n, now
        if conn is None or now < self._next:
            return
        try:
            self._next = now + _SPARE
            if now < self._quiet_until or not self._lead:
                conn.listen()
                if not self._lead:
                    return
                if not conn.asked:
                    conn.send(self._line(n))
                    return
            conn.asked = False
            answer = conn.ask(self._line(n, b',"ask":true'))
            self._be_quiet(now, answer)
            self._due = self._due or answer.get("due") is True
            if answer.get("stop"):
                self._stop, self._due, self._next = str(answer["stop"]), True, 0
        except RunOver as over:
            self._end(over)
            raise

    def _end(self, over: BaseException) -> None:
        """From now on every call raises this."""
        self._over, self._next = over, 0

    def _be_quiet(self, since: float, answer: _wire.Message) -> None:
        """Steps need not ask for as long as an answer says, counted from before it was asked for."""
        self._quiet_until = since + _wire.number(answer, "quiet_s", 0)
        self._next = 0 if self._stop else min(since + _SPARE, self._quiet_until)

    def _unsaid(self) -> bytes:
        """The step that the agent does not know of yet, as a line to send before whatever comes next."""
        return self._line(self._n, ago=monotonic() - self._at) if self._n > self._said else b""

    def _line(self, n: int, more: bytes = b"", ago: float = 0.0) -> bytes:
        """The line of a step that ended so long ago, with what is known of the seconds since the last line."""
        if self._waited > 0:
            more += b',"wait_s":%.6f' % self._waited
        if self._saving > 0:
            more += b',"save_s":%.6f' % self._saving
        if ago >= 1e-6:
            more += b',"ago_s":%.6f' % ago
        self._said, self._waited, self._saving = n, 0.0, 0.0
        return b'{"op":"step","n":%d%s}\n' % (n, more)

    @property
    def stop(self) -> Optional[str]:
        """``"yield"`` when the place is wanted back soon, else None. Loops that use ``milestone_due`` need not look."""
        return self._stop

    # ---- milestones -----------------------------------------------------------------------------------------------

    def resume(self) -> Optional[Resume]:
        """The snapshot to go on from, downloaded and verified; None: start from the beginning. On every rank."""
        if not self._resumed and self._here():
            self._resume, self._resumed = self._ask_resume(), True
            if self._resume is not None:
                self._saved, self._saved_at = self._resume.step, monotonic()
        return self._resume

    def _ask_resume(self) -> Optional[Resume]:
        if self._conn is None:
            return None
        if not self._lead:  # only the leader may ask, but all ranks see the same folder
            path = os.environ.get("HEADWAY_RESUME")
            return Resume(path, int(os.environ.get("HEADWAY_RESUME_STEP", "0"))) if path else None
        answer = self._ask({"op": "resume"})
        path = answer.get("path")
        if path is None:
            return None
        if not isinstance(path, str):
            raise HeadwayError("protocol", "the agent answered path: %r where a text was expected" % (path,))
        return Resume(path, int(_wire.number(answer, "step")), int(_wire.number(answer, "milestone", 0)))

    def milestone_due(self) -> bool:
        """Whether a milestone is wanted now, by the plan's interval or because the place is wanted back."""
        if self._conn is None or not self._lead or self._pid != getpid():
            return False
        self._minds_due = True
        due = self._due
        if not due and self._every_steps > 0:
            due = max(self._n, self._doing) // self._every_steps > self._saved // self._every_steps
        elif not due:
            due = self._every_s > 0 and monotonic() - self._saved_at >= self._every_s
        if due:
            self._saving_since, self._saving_at = monotonic(), max(self._n, self._doing)
        return due

    def milestone(self, path: "Union[str, os.PathLike[str]]", step: int, move: bool = False) -> None:
        """Hands over a finished file or folder with the state after ``step`` steps. Returns as soon as the agent has
        a private copy; ``move=True`` gives the path itself away, which costs nothing. The upload goes on beside the
        loop; the next attempt starts from here once the store has acknowledged all of it.
        """
        if not self._here():
            return
        path, step = os.path.abspath(os.fspath(path)), index(step)
        if not os.path.exists(path):
            raise HeadwayError("usage", "milestone(%r): no such file or folder; write it before handing it over" % path)
        self._minds_due = True
        if self._conn is None or not self._lead:
            return
        if self._saving_at == step > self._n:  # else the step's own end tells it
            self._saving = monotonic() - self._saving_since
        self._saving_at = -1
        if step > self._n:
            self._n, self._at = step, monotonic()
        self._ask({"op": "milestone", "step": step, "path": path, "move": bool(move)})
        self._saved, self._saved_at, self._due = step, monotonic(), False
        self._left = self._stop is not None

    # ---- words beside the steps -----------------------------------------------------------------------------------

    def note(self, **values: object) -> None:
        """Metrics of the moment: numbers or short texts, a few dozen at most. May be dropped; never waits."""
        if not self._here() or self._conn is None or not self._lead:
            return
        line = _wire.encode({"op": "note", "values": {k: _plain(v) for k, v in values.items()}})
        before = self._said, self._waited, self._saving
        try:
            if not self._conn.offer(self._unsaid() + line):
                self._said, self._waited, self._saving = before
        except RunOver as over:
            self._end(over)
            raise

    def phase(self, name: str, expect: Union[str, float]) -> "_Phase":
        """``with run.phase("eval", expect="6m")``: a silence of about that long is no death. Seconds, or text such
        as ``90s``, ``6m``, ``1h30m``."""
        return _Phase(self, name, seconds(expect))

    def waiting(self) -> "_Waiting":
        """``with run.waiting(): batch = next(data)``: keeps the waits for data apart from the computing in the
        attempt's account, so that a slow disk is not taken for a slow card. It is no evidence of progress."""
        return _Waiting(self)

    def _declare(self) -> None:
        """Tells the agent the innermost phase, or that there is none."""
        if self._conn is None or not self._lead or not self._here():
            return
        now = monotonic()
        if self._phases:
            name, expect = self._phases[-1]
            answer = self._ask({"op": "phase", "name": name[:_MAX_TEXT], "expect_s": expect})
        else:
            answer = self._ask({"op": "phase_end"})
        self._be_quiet(now, answer)

    # ---- the result -----------------------------------------------------------------------------------------------

    @property
    def result_dir(self) -> str:
        """Folder for the result; made when missing. What lies in it when the program exits with 0 is the result.
        Without an agent: ``result`` in the working folder."""
        path = os.path.abspath(os.environ.get("HEADWAY_RESULT") or "result")
        os.makedirs(path, exist_ok=True)
        return path

    def finish(self, **metrics: float) -> None:
        """Writes the final metrics to ``metrics.json`` of the result. The run ends where the ``with`` block does."""
        if not self._here() or not self._lead:
            return
        values: Dict[str, float] = {}
        for name, metric in metrics.items():
            value = _plain(metric)
            if isinstance(value, str):
                raise HeadwayError("usage", "finish(%s=%s): expected a finite number" % (name, value))
            values[name] = value
        path = os.path.join(self.result_dir, "metrics.json")
        with open(path + ".part", "w", encoding="utf-8") as f:
            json.dump(values, f, sort_keys=True, indent=1)
            f.write("\n")
        os.replace(path + ".part", path)

    # ---- begin and end --------------------------------------------------------------------------------------------

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        tb: Optional[TracebackType],
    ) -> None:
        if self._conn is None or self._pid != getpid():
            return
        try:
            if not self._lead or self._over is not None or isinstance(error, (RunOver, KeyboardInterrupt)):
                return
            if error is None or isinstance(error, SystemExit):
                self._drain()
            else:
                self._last_words("".join(traceback.format_exception(kind, error, tb)))
        finally:
            self._conn.close()
            self._conn = None
            self._end(self._over or HeadwayError("usage", "the run has ended: attach again"))

    def close(self) -> None:
        """The end of the block, for callers that cannot have one."""
        self.__exit__(None, None, None)

    def _drain(self) -> None:
        """Waits until every milestone is safe. One that failed costs the next attempt some steps; this one is done."""
        assert self._conn is not None
        if not self._minds_due:
            self._conn.send(self._unsaid())
        else:
            try:
                self._ask({"op": "drain"})
            except HeadwayError as err:
                warnings.warn("headway: a milestone was not saved: %s" % err, RuntimeWarning, stacklevel=3)

    def _last_words(self, text: str) -> None:
        """The end of a traceback, where the error stands. The caller's exception matters more than an agent gone."""
        if len(text) > _MAX_ERROR:
            text = "[...]\n" + text[-_MAX_ERROR:]
        try:
            assert self._conn is not None
            self._conn.send(self._unsaid() + _wire.encode({"op": "error", "text": text}))
        except RunOver as over:
            self._end(over)

    def _ask(self, message: _wire.Message) -> _wire.Message:
        assert self._conn is not None
        try:
            return self._conn.ask(self._unsaid() + _wire.encode(message))
        except RunOver as over:
            self._end(over)
            raise

    def _here(self) -> bool:
        """False in a forked child, for which the run does not exist. Raises where it must not be used."""
        if self._pid != getpid():
            return False
        if self._thread != get_ident():
            raise _other_thread()
        if self._over is not None:
            raise self._again()
        return True

    def _again(self) -> BaseException:
        over = self._over
        assert over is not None
        return over.with_traceback(None)


class _Phase:
    """A declared silence; inner ones replace the outer one until they end."""

    def __init__(self, run: Run, name: str, expect: float) -> None:
        self._run, self._what = run, (name, expect)

    def __enter__(self) -> None:
        self._run._phases.append(self._what)
        self._run._declare()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], tb: Any) -> None:
        self._run._phases.pop()
        if self._run._over is None:
            self._run._declare()


class _Waiting:
    """A wait for data."""

    def __init__(self, run: Run) -> None:
        self._run, self._since = run, 0.0

    def __enter__(self) -> None:
        self._since = monotonic()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], tb: Any) -> None:
        self._run._waited += monotonic() - self._since


def attach() -> Run:
    """Joins the agent whose socket HEADWAY_SOCKET names. Without that variable: a run that does nothing, so that the
    same script works on a laptop. Ranks but 0 of a launcher (torchrun, mpirun) only listen."""
    path = os.environ.get("HEADWAY_SOCKET")
    if not path:
        return Run(None)
    if _rank() != 0:
        return Run(_wire.Conn(path), lead=False)
    conn = _wire.Conn(path)
    try:
        client = "python %d.%d" % sys.version_info[:2]
        hello = {"op": "hello", "protocol": _wire.PROTOCOL, "client": client, "pid": getpid()}
        return Run(conn, conn.ask(_wire.encode(hello)))
    except BaseException:
        conn.close()
        raise


def _rank() -> int:
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK"):
        try:
            return int(os.environ[name])
        except (KeyError, ValueError):
            continue
    return 0


def seconds(expect: Union[str, float]) -> float:
    """``"6m"``, ``"1h30m"``, ``"90s"`` or a number of seconds, above zero."""
    if isinstance(expect, str):
        parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)", expect.strip())
        if not parts or "".join(a + b for a, b in parts) != expect.strip():
            raise HeadwayError("usage", "duration %r: expected such as 90s, 6m or 1h30m" % expect)
        value = sum(float(a) * _UNITS[b] for a, b in parts)
    else:
        value = float(expect)
    if not 0 < value <= _MAX_PHASE:
        raise HeadwayError("usage", "duration %r: expected more than nothing and at most a day" % (expect,))
    return value


def _plain(value: object) -> Union[float, str]:
    """A number where it is a finite one (tensors and numpy scalars too), else a bounded text."""
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    if isinstance(value, int) and -(2**53) <= value <= 2**53:
        return int(value)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return str(value)[:_MAX_TEXT]
    return number if math.isfinite(number) else str(number)


def _other_thread() -> HeadwayError:
    return HeadwayError("usage", "a run is used by the thread that attached, and by no other: call it from the loop")
