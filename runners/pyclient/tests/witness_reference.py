"""An independent reader of witness records, written from runners/witness/README.md alone.

It holds no lease and is no part of the client: it is there so that the page and its vectors are understood in two
languages. `decode` refuses a record with Refused, `move` names the move from one record to the next or refuses it."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Dict, List, Optional, Tuple

Record = Dict[str, Any]

MOST_BYTES = 4096
PROTOCOL = 1
MONTH = 31 * 24 * 3600
INTEGER, NUMBER, TEXT, OBJECT = "integer", "number", "text", "object"
NOTHING = {INTEGER: 0, NUMBER: 0, TEXT: "", OBJECT: None}  # what an absent value is

FIELDS = {
    "protocol": INTEGER, "work": TEXT, "rev": INTEGER, "write": TEXT, "attempt": INTEGER, "holder": TEXT,
    "dispatch": INTEGER, "floor": INTEGER, "state": TEXT, "lease": OBJECT, "progress": OBJECT, "resume": OBJECT,
    "finished": OBJECT, "reason": TEXT,
}  # fmt: skip
LEASE = {"seconds": NUMBER, "k": NUMBER, "step_s": NUMBER, "phase": TEXT}
PROGRESS = {"step": INTEGER, "work": NUMBER}
RESUME = {"attempt": INTEGER, "milestone": INTEGER, "step": INTEGER, "manifest": TEXT, "sha256": TEXT}
FINISHED = {"exit_code": INTEGER, "attempt": INTEGER, "manifest": TEXT, "sha256": TEXT}


class Refused(Exception):
    """The record, or the move, is not allowed."""


def need(fact: Any, why: str) -> None:
    if not fact:
        raise Refused(why)


def hexadecimal(text: str, digits: int) -> bool:
    return re.fullmatch("[0-9a-f]{%d}" % digits, text) is not None


def decode(work: str, body: bytes) -> Record:
    """The record in the bytes of witness/<work>, with every absent value filled in."""
    need(len(body) <= MOST_BYTES, "more than 4,096 bytes")
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=plain_object, parse_constant=no_constant)
    except (ValueError, RecursionError) as e:
        raise Refused("not one JSON object in UTF-8: %s" % e) from e
    need(isinstance(value, dict), "not an object")
    protocol = typed(value, {"protocol": INTEGER})["protocol"]
    need(protocol <= PROTOCOL, "a newer protocol: this reader is read-only")
    r = typed(value, FIELDS)
    r["lease"] = typed(r["lease"] or {}, LEASE)
    r["progress"] = typed(r["progress"] or {}, PROGRESS)
    for name, fields in (("resume", RESUME), ("finished", FINISHED)):
        if r[name] is not None:
            r[name] = typed(r[name], fields)
    check(work, r)
    return r


def plain_object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    for key, _ in pairs:
        need(re.fullmatch("[a-z0-9_]+", key), "a key that is not made of a-z, 0-9 and _")
    need(len({k for k, _ in pairs}) == len(pairs), "a key twice")
    return dict(pairs)


def no_constant(text: str) -> Any:
    raise Refused("%s is no JSON" % text)


def typed(value: Dict[str, Any], fields: Dict[str, str]) -> Dict[str, Any]:
    """The known fields alone, each of its type. Integers are written as integers and fit in 64 bits."""
    out = {}
    for name, kind in fields.items():
        v = value.get(name)
        if v is None:
            v = NOTHING[kind]
        elif kind == INTEGER:
            need(type(v) is int and -(2**63) <= v < 2**63, "%s is no integer" % name)
        elif kind == NUMBER:
            need(type(v) in (int, float) and fits(v), "%s is no number" % name)
        elif kind == TEXT:
            need(type(v) is str, "%s is no text" % name)
        else:
            need(type(v) is dict, "%s is no object" % name)
        out[name] = v
    return out


def fits(v: Any) -> bool:
    try:
        return math.isfinite(float(v))
    except OverflowError:
        return False


def check(work: str, r: Record) -> None:
    """The rules of the table, in its order."""
    state, lease, progress = r["state"], r["lease"], r["progress"]
    held, barred = state == "held", state == "revoked"
    need(r["protocol"] == PROTOCOL, "protocol")
    need(hexadecimal(r["work"], 64) and r["work"] == work, "the work is not the key's")
    need(r["rev"] >= 1, "the first rev is 1")
    need(hexadecimal(r["write"], 32), "write")
    need(r["attempt"] >= (0 if barred else 1), "attempt")
    need(hexadecimal(r["holder"], 32) if held else r["holder"] == "", "a holder goes with held alone")
    need(r["dispatch"] >= (0 if barred else 1), "dispatch")
    need(r["floor"] >= 0, "floor")
    need(not held or r["dispatch"] >= r["floor"], "held by a dispatch below the floor")
    need(state in ("held", "yielded", "revoked", "finished"), "state")
    need(0 <= lease["seconds"] <= MONTH and (not held or lease["seconds"] > 0), "lease.seconds")
    need(0 <= lease["k"] <= 1e12 and 0 <= lease["step_s"] <= MONTH, "lease.k, lease.step_s")
    need(progress["step"] >= 0 and 0 <= progress["work"] <= 1e40, "progress")
    attempts = "work/%s/attempt/%08d/"
    if r["resume"] is not None:
        p = r["resume"]
        need(1 <= p["attempt"] <= r["attempt"] and p["milestone"] >= 1 and p["step"] >= 0, "resume")
        key = attempts % (work, p["attempt"]) + "milestone/%08d/manifest.json" % p["milestone"]
        need(p["manifest"] == key and hexadecimal(p["sha256"], 64), "resume.manifest")
    need((r["finished"] is not None) == (state == "finished"), "finished goes with its state alone")
    if r["finished"] is not None:
        f = r["finished"]
        key = attempts % (work, r["attempt"]) + "result/manifest.json"
        need(f["attempt"] == r["attempt"] and f["manifest"] == key and hexadecimal(f["sha256"], 64), "finished")


def move(old: Optional[Record], new: Record) -> str:
    """The name of the move between two decoded records; None is an absent one."""
    if old is None:
        need(new["rev"] == 1, "the first rev is 1")
        if new["state"] == "held":
            need(new["attempt"] == 1 and new["floor"] == 0 and new["resume"] is None, "create")
            return "create"
        need(new["state"] == "revoked", "absent becomes held or revoked")
        return "bar"
    need(new["work"] == old["work"] and new["rev"] == old["rev"] + 1, "work, rev")
    need(new["write"] != old["write"], "the nonce of another write")
    name = {
        ("yielded", "held"): "capture", ("revoked", "held"): "capture", ("held", "held"): "renew",
        ("held", "yielded"): "yield", ("held", "revoked"): "revoke", ("yielded", "revoked"): "stop",
        ("revoked", "revoked"): "stop", ("held", "finished"): "finish",
    }.get((old["state"], new["state"]))  # fmt: skip
    need(name, "no such move")
    if name == "renew":
        need(new["holder"] == old["holder"], "another holder")
        name = "renew" if new["resume"] == old["resume"] else "advance"
    same = {"attempt", "dispatch", "floor", "resume"}
    same -= {"capture": {"attempt", "dispatch"}, "advance": {"resume"}, "revoke": {"floor"}, "stop": {"floor"}}.get(name, set())
    for field in sorted(same):
        need(new[field] == old[field], "%s changes %s" % (name, field))
    if name == "capture":
        need(new["attempt"] == old["attempt"] + 1 and new["dispatch"] >= old["floor"], name)
    elif name == "advance":
        need(new["resume"] is not None and new["resume"]["attempt"] == new["attempt"], "not its own attempt")
        need(old["resume"] is None or forward(old["resume"], new["resume"]), "the pointer moves forward")
    elif name == "revoke":
        need(new["floor"] >= old["floor"], "the floor never falls")
    elif name == "stop":
        need(new["floor"] > old["floor"], "a stop raises the floor")
    return name


def forward(old: Record, new: Record) -> bool:
    if new["attempt"] < old["attempt"] or new["step"] < old["step"]:
        return False
    return new["attempt"] > old["attempt"] or new["milestone"] > old["milestone"]
