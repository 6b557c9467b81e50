"""Answers of the API server: the keys that they name, and the failures that they mean."""

from __future__ import annotations

import pytest

from agent.kube.errors import KINDS, MAX_MESSAGE, Answer, Cause, answer_of, failure_of, one_line
from tests.support.api_server import denial
from tests.support.nodes import FLAVOR


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"no {FLAVOR}", True),
        (f'"{FLAVOR}": no', True),
        (f"not {FLAVOR}, nor others", True),
        (f"metadata.labels.{FLAVOR}: no", True),
        (f"metadata.labels[{FLAVOR}]: no", True),
        (f"no {FLAVOR}-2", False),
        (f"no {FLAVOR}.x", False),
        (f"no x.{FLAVOR}", False),
        ("no", False),
    ],
)
def test_naming(text: str, *, named: bool) -> None:
    """A key is named by itself, not as a part of a longer one."""
    assert denial(text).names(FLAVOR) == named


@pytest.mark.parametrize(
    ("seconds", "limited"), [(None, None), (0.0, 1.0), (30.0, 30.0), (86400.0, 600.0)]
)
def test_retry_after(seconds: float | None, limited: float | None) -> None:
    """A Retry-After is limited to between a second and ten minutes."""
    assert failure_of(Answer(429, retry_after=seconds), "n1").retry_after == limited


def test_reply_of_the_helper() -> None:
    """An answer is read from the helper's JSON; any part may be missing."""
    reply = {
        "status": 409,
        "causes": [
            {"reason": "FieldManagerConflict", "field": ".metadata.labels.a", "message": None}
        ],
    }
    answer = answer_of({**reply, "server": "https://api", "retry_after": 3.0})
    assert answer.conflicts == (Cause("FieldManagerConflict", ".metadata.labels.a", ""),)
    assert (answer.server, answer.retry_after, answer_of({})) == ("https://api", 3.0, Answer())


def test_text_of_a_server() -> None:
    """Text of a server is shown as one printable line of bounded length."""
    assert one_line("a\n b\t\x1b[31mc\u202e") == r"a b \x1b[31mc\u202e"
    assert len(one_line("x" * 5000)) == MAX_MESSAGE


@pytest.mark.parametrize("kind", KINDS)
def test_sentences(kind: str) -> None:
    """A failure of any kind is one line that names the Node and has the server's message."""
    failure = failure_of(Answer(error=kind, message="be\ncause", server="https://api"), "n1")
    assert failure.kind == kind
    assert failure.text.startswith("Node n1: ")
    assert failure.text.endswith(": be cause")


def test_manager_of_a_conflict() -> None:
    """The manager is quoted in the message of a cause, which is shown whole without quotes."""
    assert Cause("", "", 'conflict with "kubectl-edit" using v1').manager == "kubectl-edit"
    assert Cause("", "", "conflict").manager == "conflict"
