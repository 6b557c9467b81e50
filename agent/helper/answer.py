"""Decode what a helper has written before it ended."""

from __future__ import annotations

import json
import signal
from typing import Any

from agent.errors import Unavailable
from agent.text import visible

MAX_QUOTE = 200  # characters of stderr in an error message


def parse_answer(name: str, status: int, stdout: bytes, stderr: bytes) -> dict[str, Any]:
    """Decode an answer; raises Unavailable for a failed exit status or anything but an object.

    `name` is the helper's, for the message.
    """
    if status:
        raise Unavailable(f"{name}: {_exit_text(status)}{_last_line(stderr)}")
    answer = _object(stdout)
    if answer is None:
        raise Unavailable(f"{name}: its answer is no JSON object{_last_line(stderr)}")
    return answer


def _object(stdout: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(stdout)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _exit_text(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    return f"killed by {signal.Signals(-status).name}"


def _last_line(stderr: bytes) -> str:
    """Return the last line of stderr, printable, as the end of a message."""
    last = stderr.decode(errors="replace").strip().split("\n")[-1].strip()
    return f": {visible(last, MAX_QUOTE)}" if last else ""
