"""Composer: ``Trainer(callbacks=[cb])``. Duck-typed: composer is never imported here.

``save(state, path)`` and ``load(state, path)`` write and read the one file of a milestone; without them torch keeps
``state.state_dict()``.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from ._adapter import Adapter

_FILE = "headway.pt"


def _save(state: Any, path: str) -> None:
    import torch  # type: ignore[import-not-found, unused-ignore]

    torch.save(state.state_dict(), path)


def _load(state: Any, path: str) -> None:
    import torch  # type: ignore[import-not-found, unused-ignore]

    state.load_state_dict(torch.load(path, map_location="cpu"))


class Callback(Adapter):
    """See Adapter for ``run`` and ``expect``."""

    def __init__(
        self,
        *args: Any,
        save: Callable[[Any, str], Any] = _save,
        load: Callable[[Any, str], Any] = _load,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._save, self._load = save, load

    def run_event(self, event: Any, state: Any, logger: Any = None) -> None:
        """Composer's one entry, for every event it has."""
        name = event.value
        if name == "before_load":
            at = self.run.resume()
            if at:
                self._load(state, os.path.join(at.path, _FILE))
        elif name == "batch_end":
            n = int(state.timestamp.batch)
            if self._step(n, lambda folder: self._save(state, os.path.join(folder, _FILE))):
                state.stop_training()
        elif name == "eval_start":
            self._silence("eval")
        elif name == "eval_end":
            self._speak()
        elif name == "fit_end":
            self._end()

    def close(self, state: Any = None, logger: Any = None) -> None:
        """Called by the trainer at its own end."""

    def post_close(self) -> None:
        """Likewise."""
