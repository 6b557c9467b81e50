"""The command `cleanup`: what it removes, what it asks for, and what remains on the Nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import click
import pytest

from agent.cleanup import (
    CHANGED,
    CONTENDED,
    MAX_FAILURES,
    MAX_KEYS,
    MAX_PATCH,
    MAX_READS,
    Sweep,
    clean_up,
    clean_up_foreign,
    foreign_removals,
    forget_lost,
    losses,
    read_nodes,
    removals,
    remove_owned,
    unforgotten,
)
from agent.encode import Naming
from agent.errors import Misdirected, Rejected, Unavailable
from agent.kube.annotation import render
from agent.kube.answers import Answer, Kube, Request
from agent.kube.change import Change, removal
from agent.kube.managed_fields import ANNOTATION, Field
from agent.kube.nodes import of_this_host
from agent.memory import Fact
from tests.support.api_server import labels_in, operations, replies
from tests.support.nodes import ACCELERATOR_KEY as ACC
from tests.support.nodes import (
    ANNOTATED,
    BOOT,
    FLAVOR,
    IB_SPEED,
    KEYS,
    LEAF,
    NOW,
    PREFIX,
    SPEED,
    node,
    removed,
)

EXPECTED = f"{PREFIX}/speed.expected"
FAILED = Answer(403, message="no")


class Api:
    """An API server with Nodes: `before` for the first read, `after` for the next ones."""

    def __init__(self, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
        self.requests: list[Request] = []
        self._reads = [before]
        self._after = after
        self.patched: Answer = Answer(200, node=node(observed=None))

    def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        if request["operation"] in {"apply", "patch"}:
            return self.patched
        found = self._reads.pop() if self._reads else self._after
        if request["operation"] == "list":
            return Answer(200, nodes=found)
        return Answer(200, node=found[0])


def cleaned(
    before: dict[str, Any] | list[dict[str, Any]], after: dict[str, Any] | list[dict[str, Any]]
) -> list[str]:
    """Clean up, on all Nodes if there is a list of them; return the lines about what remains."""
    is_list = isinstance(before, list)
    api = Api(*(one if isinstance(one, list) else [one] for one in (before, after)))
    try:
        clean_up(api, None if is_list else "n1", Naming(), yes=True)
    except Rejected as error:
        return [str(error)]
    return []


def test_removal() -> None:
    """A removal drops the owned labels and the annotation, and no other field of the manager."""
    ours = {FLAVOR: "roce", "old.example/flavor": "roce"}
    found = removal(node(ours, {"site": {EXPECTED: "1G"}}), KEYS)
    assert removed(found) == {FLAVOR: "roce"}
    assert {field.key for field in found.wanted} == {"old.example/flavor"}
    assert Field(ANNOTATION, KEYS.annotation) in found.managed
    assert found.is_due


def test_nodes() -> None:
    """One Node, or every Node of the list, though the API server is busy for a moment; each once,
    though the listing has to begin again; a page that fails is Unavailable.
    """
    page, busy = Answer(200, nodes=[node(), node(name="n2")]), Answer(429, retry_after=0.01)
    first = replace(page, nodes=[node()], following="x")
    for said in ([page], [busy, page], [first, busy, page], [first, Answer(410), page]):
        requests, kube = replies(*said)
        assert [one["metadata"]["name"] for one in read_nodes(kube, None)] == ["n1", "n2"]
        assert {one["operation"] for one in requests} == {"list"}
    with pytest.raises(Unavailable, match="lacks the right to list nodes"):
        list(read_nodes(replies(first, FAILED)[1], None))
    with pytest.raises(Unavailable, match="Node n1: not permitted"):
        list(read_nodes(replies(FAILED)[1], "n1"))


def test_a_clean_node_remains(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything was removed: the command ends without an error."""
    assert cleaned(node({FLAVOR: "roce"}), node(observed=None)) == []
    assert "Node n1: 1 label removed" in capsys.readouterr().out
    assert cleaned(node(observed=None), node(observed=None)) == []
    assert capsys.readouterr().out == "nothing to remove\n"


def test_what_others_have_too_remains() -> None:
    """It is named with its managers, and with the command that removes it whoever owns it."""
    shared = {"nfd": {LEAF: "a"}, "topograph": {ACC: "a.1"}}
    before = node({FLAVOR: "roce", LEAF: "a", ACC: "a.1"}, shared)
    [line] = cleaned(before, node({}, shared, observed=None))
    assert line == (
        f"Node n1: not removed, held by nfd: {LEAF}; held by topograph: {ACC}; "
        f"to remove: this command with --foreign --node-name n1; kubectl label node n1 {ACC}-"
    )


def test_what_has_lost_its_owner_remains(capsys: pytest.CaptureFixture[str]) -> None:
    """With managedFields reset there is nothing that server-side apply could remove."""
    lost = node({FLAVOR: "roce"})
    lost["metadata"]["managedFields"] = []
    [line] = cleaned(lost, lost)
    assert line == (
        f"Node n1: not removed, held by no manager: {KEYS.annotation}, {FLAVOR}; "
        "to remove: this command with --foreign --node-name n1; "
        f"kubectl annotate node n1 {KEYS.annotation}-"
    )
    assert f"= {FLAVOR}=roce: left alone, held by no manager" in capsys.readouterr().out


def test_many_keys_are_counted() -> None:
    """A line names the first ones."""
    keys = {f"{PREFIX}/neighbors.current.ibp{n}.device": "a" for n in range(MAX_KEYS + 3)}
    [line] = cleaned(node(keys, {"nfd": keys}), node({}, {"nfd": keys}, observed=None))
    assert "and 3 more" in line


def test_an_agent_that_still_runs() -> None:
    """The Node was labeled again."""
    again = node({FLAVOR: "roce"})
    [line] = cleaned(node({FLAVOR: "roce"}), again)
    assert line.startswith("labeled again during this cleanup: n1; an agent still runs there")


def test_an_agent_that_writes_while_the_question_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Nodes are read again after the answer; what is new there is from an agent."""
    monkeypatch.setattr(click, "confirm", lambda _question, *, abort: abort)
    first, second = node({SPEED: "1G"}), node({SPEED: "2G"})
    removed = Answer(200, node=node(observed=None))
    for read, failed in ((second, True), (first, False), (node(observed=None), False)):
        answers = [Answer(200, node=one) for one in (first, read)]
        _, kube = replies(*answers, *[removed] * 2)
        if failed:
            with pytest.raises(Rejected, match="labeled again during this cleanup: n1"):
                clean_up(kube, "n1", Naming(), yes=False)
        else:
            clean_up(kube, "n1", Naming(), yes=False)


@pytest.mark.parametrize(
    ("written", "is_young"),
    [
        (timedelta(hours=-1), True),
        (timedelta(hours=1), True),
        (timedelta(hours=-3), False),
        (timedelta(days=3), False),
        ("yesterday", False),
        ("0001-01-01T00:00:00", False),
        (None, False),
    ],
)
def test_a_node_that_was_changed_lately_is_a_warning(
    capsys: pytest.CaptureFixture[str], written: timedelta | str | None, *, is_young: bool
) -> None:
    """Before anything is removed; the time of managedFields counts, whatever the annotation has."""
    before = node({FLAVOR: "roce"}, observed=replace(ANNOTATED, time=None))
    if isinstance(written, timedelta):
        written = (datetime.now(UTC) + written).isoformat()
    before["metadata"]["managedFields"][0]["time"] = written
    assert cleaned(before, node(observed=None)) == []
    out = capsys.readouterr().out
    words = ("labeled n1 within the last", "1 label removed")
    warned, changed = map(out.find, words)
    assert warned < changed
    assert (warned >= 0) is is_young


def test_other_prefixes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With the command that cleans them up; without one of ours there is nothing to remove."""
    old = "old.example"
    labels = {f"{old}/flavor": "roce", f"{old}/x": "1"}
    several = [node(labels, observed=None, name=name) for name in "ab"]
    flags = f"--label-prefix {old} --ib-label-prefix {old} --accelerator-label="
    keys = f"--tier-label or --accelerator-label, or kubectl label node a {old}/x-, removes it"
    assert cleaned(several, several) == []
    assert capsys.readouterr().out.splitlines() == [
        f"nothing to remove under {PREFIX} and ib.coreweave.cloud",
        f"{old}: labels of manager bwagent on 2 Nodes; bwagent cleanup {flags} --all removes them",
        f"{old}/x: of manager bwagent on 2 Nodes, and in no label table; its former {keys}",
    ]
    assert cleaned(several[0], several[0]) == []
    assert capsys.readouterr().out.splitlines()[-2] == (
        f"{old}: labels of manager bwagent on Node a; "
        f"bwagent cleanup {flags} --node-name a removes them"
    )


def test_what_remains_cannot_be_read() -> None:
    """The last line of the error says so."""
    removed = Answer(200, node=node(observed=None))
    _, kube = replies(Answer(200, node=node({FLAVOR: "roce"})), removed, FAILED)
    with pytest.raises(Rejected, match="what remains could not be read: Node n1: not permitted"):
        clean_up(kube, "n1", Naming(), yes=True)


OTHERS = {
    "kubectl-label": {LEAF: "a", ACC: "a.1", EXPECTED: "1G"},
    "labeler": {IB_SPEED: "1G", SPEED: "1G"},
    "nfd": {SPEED: "1G"},
}


def foreign(manager: str | None) -> dict[str, tuple[str, ...]]:
    """Return the keys that are to be removed, with their managers."""
    found = foreign_removals([node({FLAVOR: "roce"}, OTHERS)], KEYS, manager)
    return {field.key: held for one in found for field, held in one.managers.items()}


def test_foreign_labels() -> None:
    """Those of the table under P and IB; with a manager, those that it alone has."""
    every = {LEAF: ("kubectl-label",), IB_SPEED: ("labeler",), SPEED: ("labeler", "nfd")}
    assert foreign(None) == every
    assert foreign("labeler") == {IB_SPEED: ("labeler",)}
    assert foreign("nobody") == {}


def asked(kube: Kube, monkeypatch: pytest.MonkeyPatch, *, yes: bool) -> str:
    """Return the question of a cleanup of foreign labels."""
    questions = list[str]()

    def confirm(question: str, *, abort: bool) -> bool:
        questions.append(question)
        if abort and not yes:
            raise click.Abort
        return True

    monkeypatch.setattr(click, "confirm", confirm)
    clean_up_foreign(kube, "n1", Naming(), None, yes=False)
    return questions[0]


def test_foreign_labels_are_named_before_the_question(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With value and managers; without a yes nothing is removed, and without one nothing asked."""
    api = Api([node({FLAVOR: "roce"}, OTHERS)], [])
    with pytest.raises(click.Abort):
        asked(api, monkeypatch, yes=False)
    assert capsys.readouterr().out.splitlines() == [
        "Node n1: 3 of other managers",
        f"- {LEAF}=a, held by kubectl-label",
        f"- {SPEED}=1G, held by labeler, nfd",
        f"- {IB_SPEED}=1G, held by labeler",
    ]
    assert [request["operation"] for request in api.requests] == ["get"]
    clean_up_foreign(Api([node({FLAVOR: "roce"})], []), "n1", Naming(), None, yes=False)
    assert capsys.readouterr().out == "nothing to remove\n"


def test_foreign_labels_are_removed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one request for these labels with these values, and nothing of the agent's own."""
    labeled = [node({FLAVOR: "roce"}, OTHERS)]
    api = Api(labeled, labeled)
    assert asked(api, monkeypatch, yes=True) == "Remove these labels of others from 1 Node?"
    assert capsys.readouterr().out.splitlines()[-1] == "Node n1: 3 labels removed"
    removed = [one["path"] for one in api.requests[-1]["body"] if one["op"] == "remove"]
    assert removed == [
        f"/metadata/labels/{key.replace('/', '~1')}" for key in (LEAF, SPEED, IB_SPEED)
    ]


def test_thousands_of_foreign_labels(capsys: pytest.CaptureFixture[str]) -> None:
    """An inflated Node takes several requests, each below the API server's limit."""
    many = {f"{PREFIX}/neighbors.current.x{n}.device": "a" for n in range(MAX_PATCH + 1)}
    inflated = [node({}, {"thief": many})]
    api = Api(inflated, inflated)
    clean_up_foreign(api, "n1", Naming(), None, yes=True)
    assert [len(one["body"]) for one in api.requests[2::2]] == [MAX_PATCH + 2, 3]
    assert capsys.readouterr().out.endswith(f"Node n1: {MAX_PATCH + 1} labels removed\n")


REFUSED = Answer(422, message="no")


@pytest.mark.parametrize(
    ("reply", "after", "text"),
    [
        (REFUSED, node({}, {}), f"Node n1: {CHANGED}"),
        (REFUSED, node({}, OTHERS), "Node n1: the API server refused the request: no"),
        (FAILED, node({}, OTHERS), "Node n1: not permitted: no"),
    ],
)
def test_foreign_labels_that_cannot_be_removed(
    reply: Answer, after: dict[str, Any], text: str
) -> None:
    """The reason is one line: the server's, or that a label is not as it was shown."""
    api = Api([node({}, OTHERS)], [after])
    api.patched = reply
    with pytest.raises(Rejected) as error:
        clean_up_foreign(api, "n1", Naming(), None, yes=True)
    assert str(error.value) == text


def test_foreign_labels_of_a_node_that_changes_all_the_time() -> None:
    """The removal is tried for some versions of the Node, then the error says so."""

    def kube(request: Request) -> Answer:
        if request["operation"] == "patch":
            return REFUSED
        return Answer(200, node=node({}, OTHERS, version=str(next(versions))))

    versions = count()
    with pytest.raises(Rejected, match=f"^Node n1: {CONTENDED}$"):
        clean_up_foreign(kube, "n1", Naming(), None, yes=True)
    assert next(versions) == 1 + MAX_READS


GONE = Fact("ibp3", "0000:5e:00.0", lost_since=NOW)
LOST = replace(ANNOTATED, lost=(GONE,))


def by_hand(text: str) -> dict[str, Any]:
    """A Node whose annotation another manager has."""
    found = node(observed=text)
    found["metadata"]["managedFields"][0]["manager"] = "hand"
    return found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (render(LOST), "is held by hand"),
        ("{", "malformed annotation, ignored"),
        (render(ANNOTATED), None),
    ],
)
def test_losses_that_cannot_be_removed(text: str, line: str | None) -> None:
    """An annotation with lost ports that another manager has, and a malformed one, are faults."""
    found = losses([by_hand(text)], KEYS)
    assert bool(found) == bool(line)
    for change in found:
        (fault,) = unforgotten(change)
        assert not change.is_due
        assert fault.startswith(f"Node {change.node}: ")
        assert (line or "") in fault
        kube = replies(Answer(200, node=by_hand(text)))[1]
        with pytest.raises(Rejected, match=line):
            forget_lost(kube, "n1", Naming(), yes=True)
    (own,) = losses([node(observed=render(LOST))], KEYS)
    assert (own.is_due, unforgotten(own)) == (True, [])


DOWN = Answer(503, message="down")


class Cleaner:
    """An API server that cleans Nodes; `trouble` may answer instead."""

    def __init__(self, trouble: Callable[[str], Answer | None] = lambda _name: None) -> None:
        self.requests: list[Request] = []
        self.trouble = trouble

    def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.trouble(request["node"]) or Answer(200, node=node(observed=None))


def plans(count: int) -> list[Change]:
    found = [node({FLAVOR: "roce"}, name=f"n{number}") for number in range(count)]
    return removals(found, KEYS)


def test_losses_of_another_host_are_not_forgotten() -> None:
    """Nothing is sent but the GET."""
    requests, kube = replies(Answer(200, node=node(), boot_id="other"))
    with pytest.raises(Misdirected, match="its boot ID is other, that of this host"):
        forget_lost(of_this_host(kube, BOOT), "n1", Naming(), yes=True)
    assert operations(requests) == ["get"]


def test_a_request_has_none_of_the_owned_fields() -> None:
    """The first line of each Node sums it up, in the order of the plans."""
    api, lines = Cleaner(), list[str]()
    sweep = Sweep(plans(20), remove_owned)
    sweep.run(api, lines.append)
    assert lines == [f"Node n{number}: 1 label removed" for number in range(20)]
    assert (sweep.faults, sweep.remaining) == ([], [])
    assert [labels_in(request) for request in api.requests] == [{}] * 20


def test_several_requests_are_sent_at_a_time() -> None:
    """Eight wait for each other here, and would wait for ever otherwise."""
    together = threading.Barrier(8, timeout=60)

    def wait(_name: str) -> None:
        together.wait()

    sweep = Sweep(plans(16), remove_owned)
    sweep.run(Cleaner(wait), lambda _line: None)
    assert sweep.remaining == []


def test_a_failure_is_one_line_that_names_the_node_once() -> None:
    """The others are cleaned."""
    sweep = Sweep(plans(3), remove_owned)
    sweep.run(Cleaner(lambda name: DOWN if name == "n1" else None), lambda _line: None)
    assert sweep.faults == ["Node n1: the API server failed: down"]
    assert sweep.remaining == ["n1"]


def test_a_server_that_fails_again_and_again_is_left_alone() -> None:
    """What was begun ends, and all the others remain."""
    api = Cleaner(lambda name: None if name in {"n0", "n1"} else DOWN)
    sweep = Sweep(plans(500), remove_owned)
    sweep.run(api, lambda _line: None)
    assert sweep.remaining == [f"n{number}" for number in range(2, 500)]
    assert MAX_FAILURES <= len(sweep.faults) < 500
    assert len(api.requests) == len(sweep.faults) + 2


def test_nodes_that_are_gone_are_no_failure_of_the_server() -> None:
    """However many in a row."""
    sweep = Sweep(plans(30), remove_owned)
    gone = Answer(404, message="not found")
    sweep.run(Cleaner(lambda name: None if name == "n29" else gone), lambda _line: None)
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
        sweep.run(Cleaner(slow), interrupt)
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
        sweep.run(Cleaner(), lambda _line: None)
    assert len(sweep.remaining) == 3
