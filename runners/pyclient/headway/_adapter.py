"""What the adapters of all frameworks share: silences, snapshots, and the end."""

from __future__ import annotations

import shutil
import tempfile
from typing import Any, Callable, Optional, Union

from ._errors import RunYielded
from ._run import Run, attach


class Adapter:
    """``run``: one that the caller attached, and ends; without it the adapter has its own. ``expect``: how long an
    evaluation or a save may take before the run says anything again."""

    def __init__(self, run: Optional[Run] = None, expect: Union[str, float] = "30m") -> None:
        self._own = run is None
        self.run = attach() if run is None else run
        self._expect = expect
        self._phase: Any = None

    def _silence(self, name: str) -> None:
        self._speak()
        self._phase = self.run.phase(name, self._expect)
        self._phase.__enter__()

    def _speak(self) -> None:
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.__exit__(None, None, None)

    def _step(self, n: int, write: Callable[[str], Any]) -> bool:
        """A step is done; ``write`` fills a folder with the state when a milestone is due. True: stop training."""
        self.run.step(n)
        if self.run.milestone_due():
            folder = tempfile.mkdtemp(prefix="headway-")
            try:
                with self.run.phase("save", self._expect):
                    write(folder)
                self.run.milestone(folder, n, move=True)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return self.run.stop is not None

    def _end(self) -> None:
        """Training is over. Where the place was wanted back it is not done: what follows it must not run."""
        self._speak()
        if self._own:
            self.run.close()
        if self.run.stop:
            raise RunYielded()
