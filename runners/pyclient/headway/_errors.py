"""What a training program may have to answer to."""

from __future__ import annotations


class LeaseLost(BaseException):
    """Another attempt owns this work, or the agent is gone: stop now and write nothing.

    Not an ``Exception``, as KeyboardInterrupt is none: a broad ``except Exception`` around a batch must not eat it.
    """


class RunRevoked(LeaseLost):
    """A person asked this run to stop; no other attempt need be running. Nothing it writes now will be kept."""


class HeadwayError(RuntimeError):
    """The agent refused a request, or the client was used wrongly; the lease is not touched by it.

    ``code`` is the agent's word for it (``bad_request``, ``disk_full``, ...), or ``usage``.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
