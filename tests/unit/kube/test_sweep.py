"""A cleanup of many Nodes: several at a time, and what remains after a failure."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from agent.cleanup import MAX_FAILURES, Sweep, nodes, removals, remove_owned
from agent.errors import Unavailable
from agent.kube.answers import Answer
from tests.support.api_server import labels_in
from tests.support.nodes import FLAVOR, KEYS, node

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.kube.answers import Request
    from agent.kube.plan import Plan

DOWN = Answer(503, message="down")


class Api:
    """An API server that cleans Nodes; `trouble` may answer instead."""

    def __init__(self, trouble: Callable[[str], Answer | None] = lambda _name: None) -> None:
        self.requests: list[Request] = []
        self.trouble = trouble

    def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.trouble(request["node"]) or Answer(200, node=node(observed=None))


def plans(count: int) -> list[Plan]:
    found = [node({FLAVOR: "roce"}, name=f"n{number}") for number in range(count)]
    return removals(nodes(lambda _request: Answer(200, nodes=found), None), KEYS)


def test_a_request_has_none_of_the_owned_fields() -> None:
    """The first line of each Node sums it up, in the order of the plans."""
    api, lines = Api(), list[str]()
    sweep = Sweep(plans(20), remove_owned)
    sweep.run(api, lines.append)
    assert lines == [f"Node n{number}: 1 label changed" for number in range(20)]
    assert (sweep.faults, sweep.remaining) == ([], [])
    assert [labels_in(request) for request in api.requests] == [{}] * 20


def test_several_requests_are_sent_at_a_time() -> None:
    """Eight wait for each other here, and would wait for ever otherwise."""
    together = threading.Barrier(8, timeout=60)

    def wait(_name: str) -> None:
        together.wait()

    sweep = Sweep(plans(16), remove_owned)
    sweep.run(Api(wait), lambda _line: None)
    assert sweep.remaining == []


def test_a_failure_is_one_line_that_names_the_node_once() -> None:
    """The others are cleaned."""
    sweep = Sweep(plans(3), remove_owned)
    sweep.run(Api(lambda name: DOWN if name == "n1" else None), lambda _line: None)
    assert sweep.faults == ["Node n1: the API server failed: down"]
    assert sweep.remaining == ["n1"]


def test_a_server_that_fails_again_and_again_is_left_alone() -> None:
    """What was begun ends, and all the others remain."""
    api = Api(lambda name: None if name in {"n0", "n1"} else DOWN)
    sweep = Sweep(plans(500), remove_owned)
    sweep.run(api, lambda _line: None)
    assert sweep.remaining == [f"n{number}" for number in range(2, 500)]
    assert MAX_FAILURES <= len(sweep.faults) < 500
    assert len(api.requests) == len(sweep.faults) + 2


def test_nodes_that_are_gone_are_no_failure_of_the_server() -> None:
    """However many in a row."""
    sweep = Sweep(plans(30), remove_owned)
    gone = Answer(404, message="not found")
    sweep.run(Api(lambda name: None if name == "n29" else gone), lambda _line: None)
    assert len(sweep.faults) == len(sweep.remaining) == 29


def test_an_interruption_waits_for_what_was_sent() -> None:
    """Each Node is clean, or remains."""
    cleaned, interrupted = list[str](), threading.Event()

    def slow(name: str) -> None:
        if name != "n0":
            interrupted.wait(60)
        cleaned.append(name)

    def interrupt(_line: str) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    sweep = Sweep(plans(200), remove_owned)
    with pytest.raises(KeyboardInterrupt):
        sweep.run(Api(slow), interrupt)
    assert {*sweep.remaining, *cleaned} == {f"n{number}" for number in range(200)}
    assert not {*sweep.remaining} & {*cleaned}
    assert len(sweep.remaining) > 100


def test_a_limit_of_threads_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent, and all Nodes remain."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sweep = Sweep(plans(3), remove_owned)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Unavailable, match=r"can't start new thread: the limit of processes"):
        sweep.run(Api(), lambda _line: None)
    assert len(sweep.remaining) == 3
