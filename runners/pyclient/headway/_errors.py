"""What a training program may have to answer to."""

from __future__ import annotations


class RunOver(SystemExit):
    """Stop now: what this process does no longer counts.

    Not an ``Exception``, as KeyboardInterrupt is none: a broad ``except Exception`` around a batch must not eat it. A
    SystemExit, so that a program that lets it pass ends with its one sentence on standard error instead of a traceback.
    """


class LeaseLost(RunOver):
    """Another attempt may own this work by now, or the agent is gone: write nothing."""


class RunRevoked(RunOver):
    """A person asked this run to stop. Nothing that it hands over from now on is kept."""


class RunYielded(SystemExit):
    """The place is wanted back and the last milestone is handed over: leave, the next attempt goes on from there.

    A SystemExit, so that the program ends without a traceback, with an exit code that no finished run has.
    """

    def __init__(self) -> None:
        super().__init__(75)  # EX_TEMPFAIL of sysexits.h: try again later


class HeadwayError(RuntimeError):
    """The agent refused a request, or the client was used wrongly; the lease is not touched by it.

    ``code`` is the agent's word for it (``bad_request``, ``disk_full``, ...), or ``usage``.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
