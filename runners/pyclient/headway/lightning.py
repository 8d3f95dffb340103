"""Lightning: ``Trainer(callbacks=[cb])`` and ``trainer.fit(model, ckpt_path=cb.checkpoint)``. Duck-typed: lightning is
never imported here."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional

from ._adapter import Adapter

_FILE = "headway.ckpt"


class Callback(Adapter):
    """See Adapter for ``run`` and ``expect``."""

    state_key = "headway"

    @property
    def checkpoint(self) -> Optional[str]:
        """For ``ckpt_path``; None: start from the beginning."""
        at = self.run.resume()
        return os.path.join(at.path, _FILE) if at else None

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        # global_step counts updates: equal numbers in a row while gradients accumulate
        if self._step(trainer.global_step, lambda folder: trainer.save_checkpoint(os.path.join(folder, _FILE))):
            trainer.should_stop = True

    def on_validation_start(self, *_: Any) -> None:
        self._silence("eval")

    def on_validation_end(self, *_: Any) -> None:
        self._speak()

    def on_fit_end(self, *_: Any) -> None:
        self._end()

    def on_exception(self, trainer: Any, module: Any, error: BaseException, *_: Any) -> None:
        if self._own:
            self.run.__exit__(type(error), error, error.__traceback__)

    def state_dict(self) -> Dict[str, Any]:
        return {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on_") or name in ("setup", "teardown", "load_state_dict"):
            return lambda *args, **kwargs: None  # the trainer calls every hook it has
        raise AttributeError(name)
