"""headway: forward progress of a training run, witnessed by every step that it makes.

    import headway as w

    with w.attach() as run:
        at = run.resume()
        ...load at.path, unless at is None...
        for n in run.steps(at.step if at else 0, total):
            ...train...
            if run.milestone_due():
                ...write state.pt...
                run.milestone("state.pt", n)

Without an agent (no HEADWAY_SOCKET in the environment) the same script runs and all of this does nothing. Adapters for
frameworks are modules of their own, loaded when first named: ``w.hf``, ``w.lightning``, ``w.keras``, ``w.composer``.
"""

from __future__ import annotations

import importlib
from typing import Any, List

from ._errors import HeadwayError, LeaseLost, RunOver, RunRevoked, RunYielded
from ._run import Resume, Run, attach

__all__ = ["HeadwayError", "LeaseLost", "Resume", "Run", "RunOver", "RunRevoked", "RunYielded", "attach"]

_ADAPTERS = ("composer", "hf", "keras", "lightning")


def __getattr__(name: str) -> Any:
    if name in _ADAPTERS:
        return importlib.import_module("." + name, __name__)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


def __dir__() -> List[str]:
    return sorted([*globals(), *_ADAPTERS])
