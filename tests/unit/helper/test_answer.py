"""Answers of helpers, and the errors of those that have none."""

from __future__ import annotations

import pytest

from agent.errors import Unavailable
from agent.helper.process import MAX_QUOTE, parse_answer


def test_an_object_is_an_answer() -> None:
    """Whatever a library has printed on stderr."""
    assert parse_answer("helper smp", 0, b'{"ports": []}', b"a warning\n") == {"ports": []}


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "text"),
    [
        (1, b"{}", b"Traceback\n  \tKeyError: 'x' \n\n", "ended with status 1: KeyError: 'x'"),
        (1, b"", b" \n", "ended with status 1"),
        (-9, b"{}", b"", "killed by SIGKILL"),
        (0, b"[]", b"", "its answer is not a JSON object"),
        (0, b"{", b"a warning", "its answer is not a JSON object: a warning"),
        (0, b"\xff", b"", "its answer is not a JSON object"),
    ],
)
def test_anything_else_is_an_error(status: int, stdout: bytes, stderr: bytes, text: str) -> None:
    """It has the exit status or the format, and the last line of stderr that is not blank."""
    with pytest.raises(Unavailable) as error:
        parse_answer("helper smp", status, stdout, stderr)
    assert str(error.value) == f"helper smp: {text}"


def test_a_quoted_line_is_short_and_printable() -> None:
    with pytest.raises(Unavailable) as error:
        parse_answer("helper nvml", 1, b"", b"\x1b[31m" + b"x" * 1000)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 2 * MAX_QUOTE
