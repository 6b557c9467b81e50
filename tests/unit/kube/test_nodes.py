"""A listing of Nodes waits for a busy API server and for new credentials, not for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.errors import Unavailable
from agent.kube.answers import Answer, Kube
from agent.kube.nodes import MAX_ATTEMPTS, MAX_WAIT, Page, pages

LAST = Answer(200, nodes=[], server="https://k")
BUSY = Answer(429, message="slow down")
UNAUTHORIZED = Answer(401, message="token expired")


def server(*replies: Answer) -> Kube:
    """Return an API server with these replies."""
    left = list(replies)
    return lambda _request: left.pop(0)


@pytest.mark.parametrize(
    ("replies", "waits"),
    [
        ([replace(BUSY, retry_after=7.0)], [7.0]),
        ([replace(BUSY, retry_after=900.0), BUSY], [MAX_WAIT, 1.0]),
        ([UNAUTHORIZED], []),
        ([UNAUTHORIZED, BUSY], [1.0]),
    ],
)
def test_a_page_is_requested_again(replies: list[Answer], waits: list[float]) -> None:
    """As late as the server asks for, within a limit; at once with new credentials."""
    slept = list[float]()
    found = list(pages(server(*replies, LAST), sleep=slept.append))
    assert found == [Page([], None, is_first=True, server="https://k")]
    assert slept == waits


@pytest.mark.parametrize(
    ("reply", "text"), [(BUSY, "overloaded: slow down"), (UNAUTHORIZED, "rejected the token")]
)
def test_the_last_attempt_counts(reply: Answer, text: str) -> None:
    """The answer is the error."""
    kube = server(*[reply] * MAX_ATTEMPTS, LAST)
    with pytest.raises(Unavailable, match=f"listing Nodes failed: .*{text}"):
        list(pages(kube, sleep=lambda _seconds: None))
