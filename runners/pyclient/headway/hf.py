"""Hugging Face Trainer: ``Trainer(..., callbacks=[cb])`` and ``trainer.train(resume_from_checkpoint=cb.checkpoint)``.

The trainer writes its own checkpoints; this asks for one when a milestone is due and hands it over. It is duck-typed:
transformers is never imported here.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Optional

from ._adapter import Adapter


class Callback(Adapter):
    """See Adapter for ``run`` and ``expect``."""

    @property
    def checkpoint(self) -> Optional[str]:
        """For ``resume_from_checkpoint``; None: start from the beginning."""
        at = self.run.resume()
        return at.path if at else None

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._speak()

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.run.step(state.global_step)  # alive, though no update was made

    on_prediction_step = on_substep_end

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        self.run.step(state.global_step)
        if self.run.milestone_due():
            control.should_save = True
        if self.run.stop:
            control.should_training_stop = True
        if control.should_save or control.should_evaluate:
            self._silence("save" if control.should_save else "eval")
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not control.should_save:  # else the save follows
            self._speak()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._speak()
        self.run.milestone(os.path.join(args.output_dir, "checkpoint-%d" % state.global_step), state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._end()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on_"):  # the trainer calls every event it has
            return lambda *args, **kwargs: None
        raise AttributeError(name)
