"""Rules of the package itself: old enough a Python, nothing but the standard library, small adapters."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import unittest
from typing import Dict, Iterator, Tuple

import headway

PACKAGE = os.path.dirname(os.path.abspath(headway.__file__))
ADAPTERS = ("composer", "hf", "keras", "lightning")


def sources() -> Iterator[Tuple[str, str]]:
    for name in sorted(os.listdir(PACKAGE)):
        if name.endswith(".py"):
            with open(os.path.join(PACKAGE, name), encoding="utf-8") as f:
                yield name, f.read()


class Source(unittest.TestCase):
    def test_reads_as_python_3_9(self) -> None:
        for name, text in sources():
            tree = ast.parse(text, name, feature_version=(3, 9))
            for node in ast.walk(tree):
                self.assertNotIsInstance(node, getattr(ast, "Match", ()), name)
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
                    self.fail("%s:%d: X | Y: as a type it needs 3.10" % (name, node.lineno))

    def test_imports_nothing_but_the_standard_library(self) -> None:
        may = {"composer.py": {"torch"}}  # inside the functions that save and load without ones of the caller
        for name, text in sources():
            for node in ast.walk(ast.parse(text)):
                found = set()
                if isinstance(node, ast.Import):
                    found = {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    found = {(node.module or "").split(".")[0]}
                self.assertLessEqual(found, set(sys.stdlib_module_names) | may.get(name, set()), name)

    def test_adapters_are_small_and_loaded_when_asked(self) -> None:
        lines: Dict[str, int] = {name: text.count("\n") for name, text in sources()}
        for name in ADAPTERS:
            self.assertLess(lines[name + ".py"], 80, name)
        code = (
            "import sys, headway as w; loaded = [m for m in sys.modules if m.startswith('headway.') and m[8] != '_'];"
            "assert not loaded, loaded; assert w.hf.Callback and w.keras.Callback; assert 'hf' in dir(w)"
        )
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": PACKAGE + "/.."})
        with self.assertRaises(AttributeError):
            headway.jax

    def test_everything_public_is_annotated(self) -> None:
        for name, text in sources():
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef):
                    at = "%s:%d %s" % (name, node.lineno, node.name)
                    self.assertIsNotNone(node.returns, at)
                    for arg in node.args.args + node.args.kwonlyargs:
                        self.assertTrue(arg.annotation or arg.arg == "self", at)
        self.assertTrue(os.path.exists(os.path.join(PACKAGE, "py.typed")))


if __name__ == "__main__":
    unittest.main()
