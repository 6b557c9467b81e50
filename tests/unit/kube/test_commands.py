"""The Node in the commands: read, planned for an observation, applied; changes as lines of text."""

from __future__ import annotations

import errno
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from agent.check import Step
from agent.encode import Naming
from agent.errors import Misdirected, Unavailable
from agent.host import Host
from agent.inputs import observed
from agent.kube.answers import Answer, Request
from agent.kube.change import change_to, removal
from agent.kube.commands import (
    Target,
    check,
    check_admission,
    done_lines,
    planned,
    planned_lines,
    publish,
    target,
)
from agent.kube.managed_fields import ANNOTATION, Field
from agent.kube.negotiation import negotiate
from agent.kube.nodes import of_this_host
from agent.kube.policy import FOREIGN
from agent.labels.render import Rendered
from agent.memory import FarEnd
from agent.model import RdmaDevice, Seen
from tests.support.api_server import a_change, denial, holding, replies
from tests.support.kernel_tree import CLASS, NET, Kernel, card, host
from tests.support.nodes import ACCELERATOR_KEY as ACC
from tests.support.nodes import (
    ANNOTATED,
    BOOT,
    FLAVOR,
    IB_SPEED,
    KEYS,
    LEAF,
    PREFIX,
    SPEED,
    desired,
    node,
)
from tests.support.observations import observation
from tests.support.remembering import alone

EXPECTED = f"{PREFIX}/speed.expected"
HOST = Host(Kernel(), time.time)
SEEN = observation(("ibp0", "0000:18:00.0"))
FAILED = Answer(403, message="no")


def a_target(a_node: dict[str, Any], *more: Answer) -> Target:
    return target(replies(Answer(200, node=a_node), *more)[1], "n1", Naming())


def test_target() -> None:
    """A target has the owned labels and the addresses of the Node's annotation; a Node that cannot
    be read is Unavailable, with the reason.
    """
    on = a_target(node({FLAVOR: "roce"}, {"site": {EXPECTED: "1G"}}))
    assert on.previous == {FLAVOR: "roce"}
    assert on.interfaces == {"ibp0": "0000:18:00.0"}
    assert a_target(node(observed=None)).interfaces == {}
    assert on.problems(SEEN) == []
    with pytest.raises(Unavailable, match="Node n1: not permitted: no"):
        target(replies(FAILED)[1], "n1", Naming())


def test_probe_takes_the_count_of_an_hca_that_fails_from_the_annotation() -> None:
    """It is read of the Node, and the sum has it."""
    boot = {"proc/sys/kernel/random/boot_id": BOOT.encode()}
    failing = {f"{CLASS}/ibp0/node_type": errno.EIO}
    tree = card("ibp0", "0000:18:00.0") | card("ibp1", "0000:19:00.0") | boot
    root = Kernel({f"{NET}/lo": None}, tree, errors=failing)
    _, known = observed(host(root), {"source": ("rdma",)}, a_target(node({SPEED: "400G"})))
    assert {fact.interface: fact.gbps for fact in known.facts}["ibp0"] == 400.0


def test_probe_renews_no_hold() -> None:
    """Of an HCA that it cannot read either, it writes since when that is so."""
    row = ANNOTATED.interfaces[0]._replace(last_far=FarEnd(None, "a", "1"))
    row = row._replace(state_since=1, far_since=2, role_since=1)
    before = replace(ANNOTATED, interfaces=(row,), unknown_since=1)
    on = a_target(node({SPEED: "400G", LEAF: "a", f"{LEAF[:-6]}port-id": "1"}, observed=before))
    found = observation(("ibp1", "0000:19:00.0"))
    found = found._replace(rdma=Seen((RdmaDevice("ibp0", failure="blocks"),)))
    seen = on.completed(HOST, found)
    text = planned(on, *seen, Rendered({}))[0].wanted[Field(ANNOTATION, KEYS.annotation)]
    kept = {row["interface"]: row.get("unread") for row in json.loads(text)["ports"]}
    assert kept == {"ibp0": {"state": 1, "far": 2, "role": 1}, "ibp1": None}


def test_a_target_that_is_another_host() -> None:
    """One sentence says how to run the command there; an explanation does not go on without it."""
    kube = of_this_host(replies(Answer(200, node=node(), boot_id="other"))[1], BOOT)
    with pytest.raises(Misdirected) as caught:
        target(kube, "n1", Naming())
    assert not isinstance(caught.value, Unavailable)
    assert str(caught.value) == (
        "Node n1: another host than this one: its boot ID is other, that of this host "
        f"{BOOT}; run this in the agent's Pod on that Node: kubectl exec -n bwagent "
        "$(kubectl get pod -n bwagent -o name --field-selector spec.nodeName=n1) -- bwagent ...; "
        "--force-node if it is this host all the same"
    )
    requests, replied = replies(Answer(200, node=node(), boot_id=BOOT))
    assert target(of_this_host(replied, BOOT), "n1", Naming()).node == node()
    assert requests == [{"operation": "get", "node": "n1", "whole": True}]


@pytest.mark.parametrize(("age", "due"), [(60, False), (3700, True), (-60, True)])
def test_age_of_the_annotation(age: int, *, due: bool) -> None:
    """An annotation that is older than an hour, or from the future, is written again."""
    before = replace(ANNOTATED, time=int(time.time()) - age)
    on = a_target(node({FLAVOR: "roce"}, observed=before))
    todo, lines = planned(on, *alone(SEEN), Rendered({FLAVOR: "roce"}))
    assert (todo.is_due, lines) == (due, ["Node n1: no label changes"])


def test_publish() -> None:
    """A plan is applied if it is due; the lines name the changes. A failure and a refused key are
    returned in one line.
    """
    on = a_target(node(), Answer(200, node=node({FLAVOR: "roce"})))
    todo, lines = planned(on, *alone(SEEN), Rendered({FLAVOR: "roce"}))
    assert lines == ["Node n1: would add 1 label", f"+ {FLAVOR}=roce"]
    assert publish(on, todo) == (["Node n1: 1 label added", f"+ {FLAVOR}=roce"], None)
    same = replace(todo, wanted=todo.managed)
    assert publish(on, same) == (["Node n1: no label changes"], None)
    on = a_target(node(), Answer(503, message="down"))
    failed = "Node n1: the API server failed: down"
    assert publish(on, todo) == (["Node n1: nothing applied"], failed)
    on = a_target(node(), Answer(422, message=f"not {FLAVOR}"), *2 * [Answer(200, node=node())])
    lines, fault = publish(on, todo)
    assert lines[-1] == f"! {FLAVOR}: refused: not {FLAVOR}"
    assert fault == f"keys refused: 1, the first is {FLAVOR}"


@pytest.mark.parametrize(
    ("reply", "command"),
    [
        (Answer(error="configuration", message="none"), "export KUBECONFIG=FILE"),
        (Answer(403, message="no"), "kubectl auth can-i get node/n1"),
        (
            Answer(403, message='User "system:serviceaccount:a:b" cannot get resource "nodes"'),
            "kubectl auth can-i get node/n1 --as=system:serviceaccount:a:b",
        ),
        (
            Answer(403, message='User "system:serviceaccount:a:b;c" cannot'),
            "kubectl auth can-i get node/n1",
        ),
        (Answer(404, message="no such Node"), "kubectl get nodes"),
        (Answer(200, node=node(), boot_id="other"), "kubectl get nodes"),
        (Answer(error="unreachable", message="refused"), "kubectl get --raw /readyz"),
    ],
)
def test_a_node_that_cannot_be_read(reply: Answer, command: str) -> None:
    """The line names the Node, and the command looks at the cause; of one that can be read nothing
    is missing.
    """
    found = check(replies(reply)[1], "n1", BOOT)
    assert found.missing is Step.CLUSTER
    assert "Node n1: " in found.text
    assert found.command.startswith(command)
    assert ("--as=" in found.command) == ("--as=" in command)
    found = check(replies(Answer(200, node=node(), boot_id=BOOT))[1], "n1", BOOT)
    assert (found.is_there, found.missing, found.text) == (True, None, "Node n1 can be read")


def test_the_admission_policy() -> None:
    """In force, not in force with the command, and not known, which is nothing missing."""
    denial = "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'bwagent' with binding 'b' "
    reply = Answer(422, message=f"{denial}denied request: no")
    found = check_admission(replies(reply)[1], "n1")
    assert (found.is_there, found.text) == (True, "admission policy in force")

    def accepting(request: Request) -> Answer:
        return Answer(200, node=node({FOREIGN: request["body"]["metadata"]["labels"][FOREIGN]}))

    found = check_admission(accepting, "n1")
    assert found.missing is Step.CLUSTER
    assert found.command.startswith("kubectl apply --server-side -k ")
    found = check_admission(replies(Answer(403, message="no"))[1], "n1")
    assert (found.is_there, found.missing) == (False, None)
    assert found.text.startswith("admission policy not checked: Node n1: not permitted")


STALE = f"{PREFIX}/neighbors.current.ibp9.device"
ALL = {FLAVOR: "roce", SPEED: "3200G", IB_SPEED: "3200G", ACC: "a.1"}


def test_changes() -> None:
    """A plan and its outcome are a diff, with the managers of keys that are left alone and the
    message for refused ones.
    """
    others = {"nfd": {ACC: "b.2"}, "kubectl-label": {STALE: "x"}}
    before = node({SPEED: "2800G", LEAF: "a"}, others)
    found = change_to(before, desired(ALL, postponed=frozenset({IB_SPEED})), KEYS)
    assert planned_lines(found) == [
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
    assert done_lines(negotiate(found, server)) == [
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
    assert done_lines(negotiate(found, server))[1:] == [
        f"! {FLAVOR}: refused: {message}",
        f"! {SPEED}: refused: the same",
    ]


def test_no_changes() -> None:
    """A plan without changes, and an outcome without any, are one line."""
    found = a_change(ALL, ALL)
    assert planned_lines(found) == ["Node n1: no label changes"]
    assert done_lines(negotiate(found, holding(dict(ALL)))) == ["Node n1: up to date"]
    assert done_lines(negotiate(found, lambda _: Answer(500))) == ["Node n1: nothing applied"]
    lost = Answer(error="cut", maybe_done=True)
    assert done_lines(negotiate(found, lambda _: lost)) == ["Node n1: outcome unknown"]


def test_a_cleanup() -> None:
    """A cleanup has a line for the annotation, too."""
    found = removal(node({SPEED: "1G"}), KEYS)
    lines = [f"- {SPEED}=1G", f"- annotation {KEYS.annotation}"]
    assert planned_lines(found) == ["Node n1: would remove 1 label", *lines]
    assert done_lines(negotiate(found, holding({SPEED: "1G"}))) == [
        "Node n1: 1 label removed",
        *lines,
    ]
