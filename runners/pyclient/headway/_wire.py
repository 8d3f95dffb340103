"""The socket to the agent: one JSON object per line each way, as the agent's PROTOCOL.md has it."""

from __future__ import annotations

import json
import select
import socket
from typing import Any, Dict, Optional, Tuple

from ._errors import HeadwayError, LeaseLost, RunOver, RunRevoked

PROTOCOL = 1
MAX_LINE = 64 * 1024  # bytes, the newline included

Message = Dict[str, Any]


def encode(message: Message) -> bytes:
    """One line. Too long a one is the caller's mistake, since the agent would hang up on it."""
    text = json.dumps(message, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    line = text.encode("utf-8", "replace") + b"\n"
    if len(line) > MAX_LINE:
        raise HeadwayError("usage", "a message of %d bytes; the agent takes at most %d" % (len(line), MAX_LINE))
    return line


def verdict(code: str, text: str) -> BaseException:
    """The exception that a refusal of the agent stands for."""
    if code == "lease_lost":
        return LeaseLost(text)
    if code == "revoked":
        return RunRevoked(text)
    return HeadwayError(code, text)


class Conn:
    """A connection. Answers come in the order of their requests, pushes in between; whatever is lost ends it."""

    def __init__(self, path: str) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.connect(path)
        except OSError as err:
            self._sock.close()
            raise LeaseLost(
                "no agent answers at HEADWAY_SOCKET=%s (%s); unset it to run without one" % (path, err)
            ) from err
        self._poll = select.poll()
        self._poll.register(self._sock.fileno(), select.POLLIN)
        self._in = b""
        self._late = b""  # rest of a note that the socket took only in part
        self._last, self._answered = b"", {}  # type: Tuple[bytes, Message]
        self.asked = False  # the agent wants the next step to ask

    def close(self) -> None:
        self._sock.close()

    def send(self, line: bytes) -> None:
        """Blocks only while the agent does not read."""
        if self._late:
            line, self._late = self._late + line, b""
        try:
            self._sock.sendall(line)
        except OSError as err:
            raise self._parting(err) from err

    def offer(self, line: bytes) -> bool:
        """Sends if that does not block; False: dropped."""
        if self._late:
            return False
        try:
            sent = self._sock.send(line, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as err:
            raise self._parting(err) from err
        self._late = line[sent:]
        return True

    def ask(self, line: bytes) -> Message:
        """Sends a request and waits for its answer, which is not to be changed; a refusal is raised."""
        self.send(line)
        while True:
            data = self._receive()
            if data == self._last and not self._in:
                return self._answered  # verdict after verdict in the same words: nothing to parse
            whole = not self._in and data.find(b"\n") == len(data) - 1
            answer = self._sort(data)
            if answer is not None:
                if whole:
                    self._last, self._answered = data, answer
                return answer

    def listen(self) -> None:
        """Reads what the agent said unasked, if anything, without waiting. A microsecond when there is nothing."""
        while self._poll.poll(0):
            self._sort(self._receive())

    def _receive(self) -> bytes:
        """Waits for bytes. Raises LeaseLost at the end of the stream."""
        try:
            data = self._sock.recv(MAX_LINE)
        except OSError as err:
            raise LeaseLost("the agent is gone (%s)" % err) from err
        if not data:
            raise LeaseLost("the agent is gone: it closed the connection")
        return data

    def _sort(self, data: bytes) -> Optional[Message]:
        """Takes the pushes out of what has become whole lines; the answer among them, if any. Raises a refusal."""
        *lines, self._in = (self._in + data).split(b"\n")
        if len(self._in) > MAX_LINE:
            raise HeadwayError("protocol", "the agent sent a line of more than %d bytes" % MAX_LINE)
        answer = None
        for message in map(decode, lines):
            if "push" in message:  # those of a newer agent are ignored
                self.asked = self.asked or message["push"] == "ask"
            elif answer is None:
                answer = message
        if answer is not None and answer.get("ok") is not True:
            if answer.get("ok") is not False:
                raise HeadwayError("protocol", "the agent sent what is neither an answer nor a push: %.80r" % answer)
            raise verdict(str(answer.get("error", "internal")), str(answer.get("text", "refused without a reason")))
        return answer

    def _parting(self, err: OSError) -> RunOver:
        """Why the agent hung up: what it said last, else that it is gone."""
        try:
            while True:
                self._sort(self._receive())
        except RunOver as over:
            return over
        except HeadwayError:
            return LeaseLost("the agent is gone (%s)" % err)


_parse = json.JSONDecoder().raw_decode  # a quarter of the time of json.loads, on the path of every verdict


def decode(line: bytes) -> Message:
    """One line of the agent. Anything but an object is refused."""
    try:
        text = line.decode()
        message, end = _parse(text)
    except (ValueError, RecursionError) as err:
        raise HeadwayError("protocol", "the agent sent what is no JSON: %.80r" % line) from err
    if not isinstance(message, dict) or text[end:].strip():
        raise HeadwayError("protocol", "the agent sent what is no JSON object: %.80r" % line)
    return message


def number(message: Message, key: str, default: Optional[float] = None) -> float:
    """A number of an answer, never below zero; a missing one is refused unless there is a default."""
    value = message.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise HeadwayError("protocol", "the agent answered %s: %r where a number was expected" % (key, value))
    return value
