"""Plans and outcomes as lines of text."""

from __future__ import annotations

from agent.kube.answers import Answer
from agent.kube.change import change_to, removal
from agent.kube.diff import done, planned
from agent.kube.negotiation import negotiate
from tests.support.api_server import a_change, denial, holding
from tests.support.nodes import ACCELERATOR_KEY as ACC
from tests.support.nodes import FLAVOR, IB_SPEED, KEYS, LEAF, PREFIX, SPEED, desired, node

STALE = f"{PREFIX}/neighbors.current.ibp9.device"
ALL = {FLAVOR: "roce", SPEED: "3200G", IB_SPEED: "3200G", ACC: "a.1"}


def test_changes() -> None:
    """A plan and its outcome are a diff, with the managers of keys that are left alone and the
    message for refused ones.
    """
    others = {"nfd": {ACC: "b.2"}, "kubectl-label": {STALE: "x"}}
    before = node({SPEED: "2800G", LEAF: "a"}, others)
    found = change_to(before, desired(ALL, backed_off=frozenset({IB_SPEED})), KEYS)
    assert planned(found) == [
        "Node n1: would add 1, change 1, remove 1 labels",
        f"+ {FLAVOR}=roce",
        f"- {LEAF}=a",
        f"- {SPEED}=2800G",
        f"+ {SPEED}=3200G",
        f"= {ACC}=b.2: left alone, held by nfd; bwagent wants a.1",
        f"= {STALE}=x: not published, held by kubectl-label",
        "  bwagent cleanup --foreign --node-name n1 removes what is not published",
        f"  {IB_SPEED}: unchanged, recently refused",
    ]
    server = holding({SPEED: "2800G", LEAF: "a"}, {SPEED: "1G"}, first=[denial(f"not {FLAVOR}")])
    assert done(negotiate(found, server)) == [
        "Node n1: 2 labels changed",
        f"- {LEAF}=a",
        f"- {SPEED}=2800G",
        f"+ {SPEED}=3200G",
        f"= {ACC}=b.2: left alone, held by nfd; bwagent wants a.1",
        f"= {STALE}=x: not published, held by kubectl-label",
        "  bwagent cleanup --foreign --node-name n1 removes what is not published",
        f"  {SPEED}: taken over from kubectl-edit (2800G)",
        f"! {FLAVOR}: refused: not {FLAVOR}",
    ]


def test_a_denial_of_several_keys() -> None:
    """The server's message, which may name all of them, is there once."""
    message = f"not {FLAVOR}, not {SPEED}"
    found, server = (
        a_change(ALL, {**ALL, FLAVOR: "ib", SPEED: "1G"}),
        holding(first=[denial(message)]),
    )
    assert done(negotiate(found, server))[1:] == [
        f"! {FLAVOR}: refused: {message}",
        f"! {SPEED}: refused: the same",
    ]


def test_no_changes() -> None:
    """A plan without changes, and an outcome without any, are one line."""
    found = a_change(ALL, ALL)
    assert planned(found) == ["Node n1: no label changes"]
    assert done(negotiate(found, holding(dict(ALL)))) == ["Node n1: up to date"]
    assert done(negotiate(found, lambda _: Answer(500))) == ["Node n1: nothing applied"]
    lost = Answer(error="cut", maybe_done=True)
    assert done(negotiate(found, lambda _: lost)) == ["Node n1: outcome unknown"]


def test_a_cleanup() -> None:
    """A cleanup has a line for the annotation, too."""
    found = removal(node({SPEED: "1G"}), KEYS)
    lines = [f"- {SPEED}=1G", f"- annotation {KEYS.annotation}"]
    assert planned(found) == ["Node n1: would remove 1 label", *lines]
    assert done(negotiate(found, holding({SPEED: "1G"}))) == [
        "Node n1: 1 label removed",
        *lines,
    ]
