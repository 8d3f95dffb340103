"""The adapters against fake trainers that call hooks in the order of the real ones."""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
from types import SimpleNamespace
from typing import Any, List, Optional, Tuple

import headway as w

from .fake_agent import FakeAgent, refusal

YIELD = {"ok": True, "quiet_s": 0, "due": True, "stop": "yield"}


class Base(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="hw")
        self.addCleanup(shutil.rmtree, self.folder)

    def story(self, agent: FakeAgent) -> List[Tuple[Any, ...]]:
        """What the agent heard after the hello, in short."""
        agent.wait(lambda: agent._ended > 0)
        key = {"step": "n", "milestone": "step", "phase": "name"}
        return [(m["op"], m[key[m["op"]]]) if m["op"] in key else (m["op"],) for m in agent.seen[1:]]

    def yield_at(self, agent: FakeAgent, n: int, now: int) -> None:
        if n == now:
            agent.replies["step"] = YIELD
            agent.push({"push": "ask"})


class HuggingFace(Base):
    """Trainer._inner_training_loop in short: accumulate, update, maybe evaluate, maybe save, maybe stop."""

    def train(self, cb: Any, steps: int, evaluate: int, agent: Optional[FakeAgent] = None, stop: int = 0) -> None:
        args = SimpleNamespace(output_dir=self.folder)
        state = SimpleNamespace(global_step=0)
        control = SimpleNamespace(should_save=False, should_evaluate=False, should_training_stop=False)

        def call(event: str) -> None:
            got = getattr(cb, event)(args, state, control, model=None)
            assert got is None or got is control

        call("on_train_begin")
        call("on_epoch_begin")
        while state.global_step < steps and not control.should_training_stop:
            call("on_step_begin")
            call("on_substep_end")
            call("on_pre_optimizer_step")
            state.global_step += 1
            if agent:
                self.yield_at(agent, state.global_step, stop)
            control.should_save, control.should_evaluate = False, state.global_step == evaluate
            call("on_step_end")
            if control.should_evaluate:
                call("on_prediction_step")
                call("on_evaluate")
            if control.should_save:
                os.makedirs(os.path.join(self.folder, "checkpoint-%d" % state.global_step))
                self.assertIsNotNone(cb._phase, "the save is not covered by a silence")
                call("on_save")
        call("on_train_end")

    def test_updates_evaluation_and_saves(self) -> None:
        with FakeAgent(every_steps=3) as agent:
            cb = w.hf.Callback(expect="5m")
            self.assertIsNone(cb.checkpoint)
            self.train(cb, steps=4, evaluate=2)
            story = self.story(agent)
        self.assertEqual(story, [
            ("resume",), ("step", 0), ("step", 1), ("step", 1), ("step", 2), ("phase", "eval"), ("step", 2),
            ("phase_end",), ("step", 2), ("step", 3), ("phase", "save"), ("phase_end",), ("milestone", 3),
            ("step", 3), ("step", 4), ("drain",)])  # fmt: skip

    def test_yield(self) -> None:
        with FakeAgent(quiet_s=0) as agent:
            with self.assertRaises(w.RunYielded):
                self.train(w.hf.Callback(), steps=9, evaluate=0, agent=agent, stop=2)
            self.assertEqual(self.story(agent)[-5:], [
                ("step", 2), ("phase", "save"), ("phase_end",), ("milestone", 2), ("drain",)])  # fmt: skip

    def test_one_silence_covers_an_evaluation_and_the_save_behind_it(self) -> None:
        with FakeAgent(every_steps=2) as agent:
            self.train(w.hf.Callback(), steps=2, evaluate=2)
            self.assertEqual(self.story(agent)[-6:], [
                ("step", 2), ("phase", "save"), ("step", 2), ("phase_end",), ("milestone", 2), ("drain",)])  # fmt: skip

    def test_resume_and_no_agent(self) -> None:
        with FakeAgent(resume=self.folder, resume_step=7):
            cb = w.hf.Callback()
            self.assertEqual(cb.checkpoint, self.folder)
            cb.run.close()
        cb = w.hf.Callback()
        self.train(cb, steps=3, evaluate=2)
        with self.assertRaises(AttributeError):
            cb.off_step_end


class Lightning(Base):
    def fit(self, cb: Any, batches: int, agent: Optional[FakeAgent] = None, stop: int = 0) -> Any:
        trainer = SimpleNamespace(global_step=0, should_stop=False, saved=[])

        def save_checkpoint(path: str) -> None:
            trainer.saved.append(path)
            with open(path, "w", encoding="utf-8") as f:
                f.write(str(trainer.global_step))

        trainer.save_checkpoint = save_checkpoint
        self.assertEqual(cb.state_dict(), {})
        cb.setup(trainer, None, stage="fit")
        cb.on_fit_start(trainer, None)
        for batch in range(batches):
            trainer.global_step = (batch + 1) // 2  # two batches to an update
            if agent:
                self.yield_at(agent, trainer.global_step, stop)
            cb.on_train_batch_end(trainer, None, {}, None, batch)
            if trainer.should_stop:
                break
        cb.on_validation_start(trainer, None)
        cb.on_validation_end(trainer, None)
        cb.on_fit_end(trainer, None)
        cb.teardown(trainer, None, stage="fit")
        return trainer

    def test_updates_validation_and_saves(self) -> None:
        with FakeAgent(every_steps=2) as agent:
            trainer = self.fit(w.lightning.Callback(), batches=4)
            self.assertEqual(self.story(agent), [
                ("step", 0), ("step", 1), ("step", 1), ("step", 2), ("phase", "save"), ("phase_end",), ("milestone", 2),
                ("phase", "eval"), ("phase_end",), ("drain",)])  # fmt: skip
            self.assertEqual(os.listdir(agent.kept[0]), ["headway.ckpt"])
        self.assertFalse(os.path.exists(os.path.dirname(trainer.saved[0])))

    def test_yield_exception_and_resume(self) -> None:
        with FakeAgent() as agent:
            with self.assertRaises(w.RunYielded):
                self.fit(w.lightning.Callback(), batches=9, agent=agent, stop=1)
            self.assertEqual([m["step"] for m in agent.heard("milestone")], [1])
        with FakeAgent(resume=self.folder) as agent:
            cb = w.lightning.Callback()
            self.assertEqual(cb.checkpoint, os.path.join(self.folder, "headway.ckpt"))
            cb.on_exception(None, None, ValueError("nan"))
            self.assertIn("ValueError: nan", agent.heard("error")[0]["text"])


class Keras(Base):
    def fit(self, cb: Any, batches: int, agent: Optional[FakeAgent] = None, stop: int = 0) -> Any:
        model = SimpleNamespace(stop_training=False, loaded=None)

        def save_weights(path: str) -> None:
            with open(path, "w", encoding="utf-8") as f:
                f.write("weights")

        model.save_weights, model.load_weights = save_weights, lambda path: setattr(model, "loaded", path)
        cb.set_params({"epochs": 1})
        cb.set_model(model)
        self.assertTrue(cb._implements_train_batch_hooks())
        cb.on_train_begin(None)
        for batch in range(batches):
            if agent:
                self.yield_at(agent, batch + 1, stop)
            cb.on_train_batch_begin(batch)
            cb.on_train_batch_end(batch, {"loss": 1.0})
            if model.stop_training:
                break
        cb.on_test_begin()
        cb.on_test_end()
        cb.on_epoch_end(0, {})
        cb.on_train_end()
        return model

    def test_batches_evaluation_and_saves(self) -> None:
        with FakeAgent(every_steps=2, resume=self.folder, resume_step=3) as agent:
            model = self.fit(w.keras.Callback(), batches=2)
            self.assertEqual(self.story(agent), [
                ("resume",), ("step", 4), ("phase", "save"), ("phase_end",), ("milestone", 4), ("step", 5),
                ("phase", "eval"), ("phase_end",), ("drain",)])  # fmt: skip
        self.assertEqual(model.loaded, os.path.join(self.folder, "headway.weights.h5"))

    def test_a_run_of_the_caller_stays_open(self) -> None:
        with FakeAgent() as agent:
            with w.attach() as run:
                self.fit(w.keras.Callback(run), batches=2)
                run.step(3)
            self.assertEqual([m["n"] for m in agent.heard("step")], [1, 2, 3])

    def test_a_refused_snapshot_leaves_nothing_behind(self) -> None:
        saved: List[str] = []
        with FakeAgent(every_steps=1) as agent:
            agent.replies["milestone"] = refusal("disk_full")
            cb = w.keras.Callback(save=lambda model, folder: saved.append(folder))
            with self.assertRaises(w.HeadwayError):
                self.fit(cb, batches=1)
            cb.run.close()
        self.assertEqual([os.path.exists(folder) for folder in saved], [False])

    def test_yield_with_own_savers(self) -> None:
        saved: List[str] = []
        with FakeAgent() as agent:
            with self.assertRaises(w.RunYielded):
                cb = w.keras.Callback(save=lambda model, folder: saved.append(folder))
                self.fit(cb, batches=9, agent=agent, stop=3)
            self.assertEqual([m["step"] for m in agent.heard("milestone")], [3])
        self.assertEqual(len(saved), 1)


class Composer(Base):
    def fit(self, cb: Any, batches: int, agent: Optional[FakeAgent] = None, stop: int = 0) -> List[str]:
        stopped: List[str] = []
        state = SimpleNamespace(timestamp=SimpleNamespace(batch=0), stop_training=lambda: stopped.append("stop"))

        def event(name: str) -> None:
            cb.run_event(SimpleNamespace(value=name), state, None)

        for name in ("init", "before_load", "after_load", "fit_start"):
            event(name)
        for batch in range(batches):
            state.timestamp.batch = batch + 1
            if agent:
                self.yield_at(agent, batch + 1, stop)
            event("batch_start")
            event("batch_end")
            if stopped:
                break
        event("eval_start")
        event("eval_end")
        event("fit_end")
        cb.close(state, None)
        cb.post_close()
        return stopped

    def test_batches_evaluation_and_saves(self) -> None:
        loaded: List[str] = []

        def save(state: Any, path: str) -> None:
            with open(path, "w", encoding="utf-8") as f:
                f.write("state")

        with FakeAgent(every_steps=2, resume=self.folder, resume_step=0) as agent:
            self.fit(w.composer.Callback(save=save, load=lambda state, path: loaded.append(path)), batches=2)
            self.assertEqual(self.story(agent), [
                ("resume",), ("step", 1), ("step", 2), ("phase", "save"), ("phase_end",), ("milestone", 2),
                ("phase", "eval"), ("phase_end",), ("drain",)])  # fmt: skip
            self.assertEqual(os.listdir(agent.kept[0]), ["headway.pt"])
        self.assertEqual(loaded, [os.path.join(self.folder, "headway.pt")])

    def test_yield_in_a_run_of_the_caller(self) -> None:
        with FakeAgent() as agent:
            with self.assertRaises(w.RunYielded):
                with w.attach() as run:
                    cb = w.composer.Callback(run, save=lambda state, path: None)
                    self.fit(cb, batches=9, agent=agent, stop=2)
            self.assertEqual(self.story(agent)[-3:], [("phase", "eval"), ("phase_end",), ("drain",)])


if __name__ == "__main__":
    unittest.main()
