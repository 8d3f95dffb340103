"""Holds every vector of the witness against witness_reference, which was written from the page and not from the code:
where the two differ, the page, the vector or the reader is wrong."""

from __future__ import annotations

import base64
import json
import unittest
from typing import Any, Dict

from .test_vectors import vectors
from .witness_reference import MOST_BYTES, Refused, decode, move


def body(case: Dict[str, Any]) -> bytes:
    if "text" in case:
        return case["text"].encode("utf-8")
    if "base64" in case:
        return base64.b64decode(case["base64"])
    return json.dumps(case["record"]).encode("utf-8")


class Records(unittest.TestCase):
    def test_every_record(self) -> None:
        file = vectors("records.json")
        self.assertGreater(len(file["cases"]), 80)
        for case in file["cases"]:
            with self.subTest(case["name"], why=case["why"]):
                if case["expect"] == "accept":
                    decode(file["work"], body(case))
                else:
                    with self.assertRaises(Refused):
                        decode(file["work"], body(case))

    def test_spelling_decides_nothing(self) -> None:
        file = vectors("records.json")
        for case in file["cases"]:
            if case["expect"] == "accept" and "record" in case:
                text = json.dumps(case["record"], indent=1, sort_keys=True)
                self.assertEqual(decode(file["work"], body(case)), decode(file["work"], b"\n " + text.encode() + b"\t\r\n"))

    def test_every_cut_record_is_refused(self) -> None:
        file = vectors("records.json")
        whole = body(file["cases"][0])
        for n in range(len(whole)):
            with self.assertRaises(Refused):
                decode(file["work"], whole[:n])
        padded = whole + b" " * (MOST_BYTES - len(whole))
        decode(file["work"], padded)
        with self.assertRaises(Refused):
            decode(file["work"], padded + b" ")


class Transitions(unittest.TestCase):
    def test_every_transition(self) -> None:
        file = vectors("transitions.json")
        self.assertGreater(len(file["cases"]), 50)
        for case in file["cases"]:
            with self.subTest(case["name"], why=case["why"]):
                old = case["old"] and decode(file["work"], json.dumps(case["old"]).encode())
                if case["expect"] == "accept":
                    self.assertEqual(move(old, decode(file["work"], json.dumps(case["new"]).encode())), case["move"])
                else:
                    with self.assertRaises(Refused):
                        move(old, decode(file["work"], json.dumps(case["new"]).encode()))


if __name__ == "__main__":
    unittest.main()
