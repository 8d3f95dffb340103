"""Keras: ``model.fit(..., callbacks=[cb])``. Duck-typed: keras is never imported here.

A step is a batch. The milestone is what ``save_weights`` writes; give ``save(model, folder)`` and
``load(model, folder)`` to keep more, such as the optimizer's moments.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from ._adapter import Adapter

_FILE = "headway.weights.h5"


def _save(model: Any, folder: str) -> None:
    model.save_weights(os.path.join(folder, _FILE))


def _load(model: Any, folder: str) -> None:
    model.load_weights(os.path.join(folder, _FILE))


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
        self._n = 0
        self.model: Any = None

    def set_model(self, model: Any) -> None:
        self.model = model

    def on_train_begin(self, logs: Any = None) -> None:
        at = self.run.resume()
        if at:
            self._load(self.model, at.path)
            self._n = at.step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._n += 1
        if self._step(self._n, lambda folder: self._save(self.model, folder)):
            self.model.stop_training = True

    def on_test_begin(self, logs: Any = None) -> None:
        self._silence("eval")

    def on_test_end(self, logs: Any = None) -> None:
        self._speak()

    def on_train_end(self, logs: Any = None) -> None:
        self._end()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_implements_"):  # asked by older versions, to leave out hooks that do nothing
            return lambda: True
        if name.startswith("on_") or name == "set_params":
            return lambda *args, **kwargs: None
        raise AttributeError(name)
