"""What is made of an API server's answers: nothing of ours is lost, nothing of others' is touched,
and it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.apply import FAMILIES, Outcome, Refusal, Taken, run_negotiation
from agent.kube.commands import removal
from agent.kube.diff import done, planned
from agent.kube.managed_fields import ANNOTATION, LABEL, Field
from agent.kube.plan import ForeignField, Plan, plan
from agent.kube.response import KINDS, Answer, Cause, answer_of, failure_of, one_line
from tests.support.nodes import ACCELERATOR_KEY as ACC
from tests.support.nodes import FLAVOR, IB_SPEED, KEYS, LEAF, PREFIX, SPEED, desired, node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.kube.transport import Request

ALL = {FLAVOR: "roce", SPEED: "3200G", IB_SPEED: "3200G", ACC: "a.1"}
MOST_REQUESTS = 80  # a server that refuses each key by its own, and conflicts all the time


@dataclass(slots=True)
class Server:
    """An API server as far as labels go: what we hold, what others hold, and what it refuses to see
    changed.
    """

    ours: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    denies: Callable[[str], bool] = lambda _: False
    names: bool = False  # its denials name the keys
    first: list[Answer] = field(default_factory=list)  # said before it does anything
    requests: list[Request] = field(default_factory=list)

    def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        if self.first:
            return self.first.pop(0)
        asked = labels_in(request) | annotations_in(request)
        conflicts = [key for key, value in asked.items() if self.others.get(key, value) != value]
        if conflicts and not request["force"]:
            return conflict(*conflicts)
        changes = {
            key for key in asked.keys() | self.ours.keys() if asked.get(key) != self.ours.get(key)
        }
        if denied := sorted(filter(self.denies, changes)):
            return denial(
                f"policy says no: {', '.join(denied)}"
                if self.names
                else "labels of *.coreweave.cloud: no"
            )
        self.others = {
            key: value for key, value in self.others.items() if asked.get(key, value) == value
        }
        self.ours = asked
        return Answer(
            200, node=node({key: value for key, value in asked.items() if key != KEYS.annotation})
        )


def labels_in(request: Request) -> dict[str, str]:
    return dict(request["body"]["metadata"].get("labels", {}))


def annotations_in(request: Request) -> dict[str, str]:
    return dict(request["body"]["metadata"].get("annotations", {}))


def conflict(*keys: str, manager: str = "kubectl-edit") -> Answer:
    causes = (
        Cause(
            "FieldManagerConflict",
            f".metadata.{'annotations' if key == KEYS.annotation else 'labels'}.{key}",
            f'conflict with "{manager}" using v1',
        )
        for key in keys
    )
    return Answer(409, "Conflict", f"Apply failed with {len(keys)} conflicts", tuple(causes))


def denial(message: str, status: int = 422) -> Answer:
    return Answer(status, "Invalid", message)


def a_plan(ours: Mapping[str, str], wanted: Mapping[str, str], **changes: Any) -> Plan:
    return plan(node(ours, observed=None), desired(wanted, **changes), KEYS)


def settle(server: Server, wanted: Mapping[str, str]) -> Outcome:
    """Plan from what the server has, and hold the negotiation."""
    ours = {key: value for key, value in server.ours.items() if key != KEYS.annotation}
    return run_negotiation(a_plan(ours, wanted), server)


def labels(server: Server) -> dict[str, str]:
    return {key: value for key, value in server.ours.items() if key != KEYS.annotation}


def test_accepted() -> None:
    """One request without force, and the Node is as it should be."""
    server = Server({SPEED: "1G", LEAF: "a"})
    outcome = settle(server, ALL)
    assert labels(server) == ALL
    assert (outcome.applied, outcome.removed) == (dict(sorted(ALL.items())), (LEAF,))
    assert [request["force"] for request in server.requests] == [False]
    assert outcome.node is not None


def test_no_change_is_asked_once() -> None:
    """The hourly request repairs what is not seen, even where nothing is to change."""
    server = Server(dict(ALL))
    outcome = settle(server, ALL)
    assert (outcome.applied, outcome.removed, outcome.requests) == ({}, (), 1)


def test_a_key_of_ours_is_taken() -> None:
    """A conflict about a key of the table is answered with force."""
    server = Server({}, {FLAVOR: "x"})
    outcome = settle(server, {FLAVOR: "roce"})
    assert labels(server) == {FLAVOR: "roce"}
    assert [request["force"] for request in server.requests] == [False, True]
    assert outcome.taken == (Taken(FLAVOR, "kubectl-edit"),)


def test_the_accelerator_is_left() -> None:
    """A conflict about the accelerator's key leaves it to its manager, without force."""
    server = Server({}, {ACC: "b.2"})
    outcome = settle(server, {FLAVOR: "roce", ACC: "a.1"})
    assert labels(server) == {FLAVOR: "roce"}
    assert not any(request["force"] for request in server.requests)
    assert outcome.left_alone == (ForeignField(ACC, None, "a.1", ("kubectl-edit",)),)
    assert outcome.removed == ()


def test_both_conflicts_at_once() -> None:
    """Ours is taken and theirs is left, in one further request."""
    server = Server({ACC: "a.1"}, {FLAVOR: "x", ACC: "b.2"})
    outcome = settle(server, ALL)
    assert labels(server) == {key: value for key, value in ALL.items() if key != ACC}
    assert (server.others, outcome.requests) == ({ACC: "b.2"}, 2)
    assert outcome.removed == ()


def test_the_annotation_is_taken() -> None:
    """The annotation is ours whoever wrote it last."""
    server = Server({}, {KEYS.annotation: "x"})
    settle(server, {FLAVOR: "roce"})
    assert KEYS.annotation in server.ours


def test_force_is_for_one_request() -> None:
    """What is sent after a forced request starts without force again, so that the accelerator
    cannot be taken by it.
    """
    server = Server({}, {FLAVOR: "x", ACC: "a.1"}, denies=lambda key: key.startswith(PREFIX))
    original, calls = server.__call__, []

    def changed_meanwhile(request: Request) -> Answer:
        calls.append(request)
        if len(calls) == 2:
            server.others[ACC] = "b.2"
        return original(request)

    run_negotiation(a_plan({}, {FLAVOR: "roce", ACC: "a.1"}), changed_meanwhile)
    assert server.others[ACC] == "b.2"
    assert ACC not in server.ours


def test_conflicts_without_end() -> None:
    """Somebody who changes a key all the time ends the negotiation as a conflict, which passes."""
    outcome = run_negotiation(a_plan({}, ALL), lambda _: conflict(FLAVOR))
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.transient) == ("conflict", True)


def test_a_key_that_is_lost_is_not_called_removed() -> None:
    """What somebody else took while it was only carried along is theirs, not removed."""
    kept = a_plan({SPEED: "1G"}, {SPEED: "2G", ACC: "a.1"}, backed_off=frozenset({SPEED}))
    server = Server({SPEED: "1G"}, {SPEED: "9G"})
    outcome = run_negotiation(kept, server)
    assert labels(server) == {ACC: "a.1"}
    assert server.others == {SPEED: "9G"}
    assert (outcome.removed, [held.key for held in outcome.left_alone]) == ((), [SPEED])


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_denial_that_names_a_key(status: int) -> None:
    """The named key stays as it is, with the server's words; the others go."""
    server = Server({SPEED: "1G"}, first=[denial(f"we do not like {SPEED}.", status)])
    outcome = settle(server, ALL)
    assert labels(server) == {**ALL, SPEED: "1G"}
    assert outcome.refused == (Refusal(SPEED, f"we do not like {SPEED}."),)
    assert (set(outcome.back_off), outcome.requests) == ({SPEED}, 2)


def test_a_denial_that_names_a_key_in_its_causes() -> None:
    """A cause's field names a key as well as words do."""
    told = Answer(
        422,
        "Invalid",
        "no",
        (Cause("FieldValueForbidden", f"metadata.labels.{FLAVOR}", "not yours"),),
    )
    server = Server(first=[told])
    assert settle(server, ALL).back_off == {FLAVOR}


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
    """A key is named by itself, not as a part of another."""
    assert denial(text).names(FLAVOR) == named


def test_a_denial_that_names_none() -> None:
    """The families are tried one by one, and what was there stays while another is tried."""
    server = Server({SPEED: "1G", LEAF: "a"}, denies=lambda key: "coreweave.cloud" in key)
    outcome = settle(server, ALL)
    assert labels(server) == {SPEED: "1G", LEAF: "a", ACC: "a.1"}
    assert outcome.back_off == {"P", "IB", "observed"}
    assert {refusal.key for refusal in outcome.refused} == {
        FLAVOR,
        SPEED,
        LEAF,
        IB_SPEED,
        KEYS.annotation,
    }
    assert outcome.applied == {ACC: "a.1"}
    assert outcome.failure is None
    assert outcome.requests == 5
    assert all(
        LEAF in labels_in(request) for request in server.requests[1:] if ACC in labels_in(request)
    )


def test_a_denial_that_names_everything() -> None:
    """A denial that lists all that was sent says as much as one that names nothing."""
    server = Server(
        denies=lambda key: "coreweave.cloud" in key,
        first=[denial(" ".join((*ALL, KEYS.annotation)))],
    )
    assert labels_after(server) == {ACC: "a.1"}


def labels_after(server: Server) -> dict[str, str]:
    settle(server, ALL)
    return labels(server)


def test_a_denial_of_one_family() -> None:
    """Where only one family changes there is nothing to try."""
    ours = {FLAVOR: "roce", ACC: "a.1"}
    found = plan(node(ours), desired({**ours, SPEED: "1G"}), KEYS)
    outcome = run_negotiation(found, lambda _: denial("no"))
    assert (set(outcome.back_off), outcome.requests) == ({"P"}, 1)


def test_a_denial_key_by_key() -> None:
    """A server that names one key at a time is followed for a while; then its family is left."""
    said: list[str] = []

    def one_by_one(request: Request) -> Answer:
        refused = sorted(key for key in labels_in(request) if key.startswith(PREFIX))
        said.extend(refused[:1])
        return denial(f"not {refused[0]}") if refused else server(request)

    server, many = Server(), {f"{PREFIX}/neighbors.current.ibp{n}.device": "x" for n in range(20)}
    outcome = run_negotiation(a_plan({}, {**many, ACC: "a.1"}), one_by_one)
    assert labels(server) == {ACC: "a.1"}
    assert {refusal.key for refusal in outcome.refused} == many.keys()
    assert "P" in outcome.back_off
    assert outcome.requests < 12


def test_a_denial_of_nothing() -> None:
    """Where nothing is to change, a denial is a failure and no key's."""
    kept = plan(node(ALL), desired(ALL), KEYS)
    outcome = run_negotiation(kept, lambda _: denial("no writes today"))
    assert (outcome.refused, outcome.failure and outcome.failure.kind) == ((), "refused")


def test_no_permission() -> None:
    """RBAC's refusal is nobody's key: it is not narrowed down, and does not pass by itself."""
    words = 'nodes "n1" is forbidden: User "x" cannot patch resource "nodes" in API group "" at the cluster scope'
    outcome = run_negotiation(a_plan({}, ALL), lambda _: denial(words, 403))
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.transient, outcome.requests) == (
        "forbidden",
        False,
        1,
    )


def test_a_rotated_token() -> None:
    """401 is asked once more, since the token is read again for each request; twice is a failure
    that passes.
    """
    server = Server(first=[Answer(401, "Unauthorized", "Unauthorized")])
    outcome = settle(server, ALL)
    assert (labels(server), outcome.requests) == (ALL, 2)
    outcome = run_negotiation(
        a_plan({}, ALL), lambda _: Answer(401, "Unauthorized", "Unauthorized")
    )
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.transient, outcome.requests) == (
        "unauthorized",
        True,
        2,
    )


UID = (Cause("FieldValueInvalid", "metadata.uid", "field is immutable"),)


@pytest.mark.parametrize(
    ("answer", "kind", "transient"),
    [
        (Answer(404, "NotFound", 'nodes "n1" not found'), "not-found", True),
        (
            Answer(409, "Conflict", 'on nodes "n1": uid mismatch: no existing object was found'),
            "recreated",
            True,
        ),
        (Answer(422, "Invalid", "field is immutable", UID), "recreated", True),
        (Answer(409, "Conflict", "the object has been modified"), "conflict", True),
        (Answer(429, "TooManyRequests", "later", retry_after=7.0), "busy", True),
        (Answer(500, "InternalError", "failed calling webhook"), "server", True),
        (Answer(503, message="it answers with text/html: '<html>'"), "server", True),
        (Answer(408), "timeout", True),
        (Answer(407, message="authenticate"), "proxy", False),
        (Answer(415, message="unsupported media type"), "refused", False),
        *((Answer(error=kind, message="why"), kind, None) for kind in KINDS),
        (Answer(200, error="garbage", message="it answers 200 with text/html"), "garbage", True),
        (Answer(), "refused", False),
    ],
)
def test_failures(answer: Answer, kind: str, transient: bool | None) -> None:
    """What no key is to blame for ends the negotiation in one line that names the Node, and changes
    nothing.
    """
    outcome = run_negotiation(a_plan({SPEED: "1G"}, ALL), lambda _: answer)
    assert outcome.failure is not None
    assert outcome.failure.kind == kind
    assert transient is None or outcome.failure.transient == transient
    assert outcome.failure.text.startswith("Node n1: ")
    assert "\n" not in outcome.failure.text
    assert (outcome.applied, outcome.removed, outcome.requests) == ({}, (), 1)


def test_a_failure_on_the_way() -> None:
    """What was accepted before a failure is told, with the failure."""
    server = Server({LEAF: "a"}, denies=lambda key: key == FLAVOR)
    asked: list[Request] = []

    def ask(request: Request) -> Answer:
        asked.append(request)
        return server(request) if len(asked) <= 3 else Answer(503, message="down")

    outcome = run_negotiation(a_plan({LEAF: "a"}, ALL), ask)
    assert outcome.applied == {IB_SPEED: "3200G"}
    assert outcome.failure is not None
    assert "failed: down" in outcome.failure.text


@pytest.mark.parametrize(
    ("said", "waited"), [(None, None), (0.0, 1.0), (30.0, 30.0), (86400.0, 600.0)]
)
def test_retry_after(said: float | None, waited: float | None) -> None:
    """What the server asks to wait is kept to within a second and ten minutes."""
    assert failure_of(Answer(429, retry_after=said), "n1").retry_after == waited


def test_the_words_of_others() -> None:
    """A server's words become one line of bounded length without control characters."""
    assert one_line("a\n b\t\x1b[31mc\u202e") == "a b ?[31mc?"
    assert len(one_line("x" * 5000)) == 500


def test_the_helpers_answer() -> None:
    """An answer is read out of the helper's JSON, whatever of it is missing."""
    told = {
        "status": 409,
        "causes": [
            {"reason": "FieldManagerConflict", "field": ".metadata.labels.a", "message": None}
        ],
    }
    answer = answer_of({**told, "server": "https://api", "retry_after": 3.0})
    assert answer.conflicts == (Cause("FieldManagerConflict", ".metadata.labels.a", ""),)
    assert (answer.server, answer.retry_after, answer_of({})) == ("https://api", 3.0, Answer())


def test_the_difference() -> None:
    """A plan and its outcome read like a diff, with who holds what is left alone and why what was
    refused was.
    """
    before = node({SPEED: "2800G", LEAF: "a"}, {"nfd": {ACC: "b.2"}})
    found = plan(before, desired(ALL, backed_off=frozenset({IB_SPEED})), KEYS)
    assert planned(found) == [
        "Node n1: 1 added, 1 changed, 1 removed",
        f"+ {FLAVOR}=roce",
        f"- {LEAF}=a",
        f"- {SPEED}=2800G",
        f"+ {SPEED}=3200G",
        f"= {ACC}=b.2: left alone, held by nfd; bwagent wants a.1",
        f"  {IB_SPEED}: unchanged, recently refused",
    ]
    server = Server({SPEED: "2800G", LEAF: "a"}, {SPEED: "1G"}, first=[denial(f"not {FLAVOR}")])
    assert done(found, run_negotiation(found, server)) == [
        "Node n1: 2 labels changed",
        f"- {LEAF}=a",
        f"- {SPEED}=2800G",
        f"+ {SPEED}=3200G",
        f"= {ACC}=b.2: left alone, held by nfd; bwagent wants a.1",
        f"  {SPEED}: taken over from kubectl-edit",
        f"! {FLAVOR}: refused: not {FLAVOR}",
    ]


def test_no_difference() -> None:
    """Where nothing changes, or nothing could be changed, it says so."""
    found = a_plan(ALL, ALL)
    assert planned(found) == ["Node n1: no label changes"]
    assert done(found, run_negotiation(found, Server(dict(ALL)))) == ["Node n1: up to date"]
    assert done(found, run_negotiation(found, lambda _: Answer(500))) == [
        "Node n1: nothing applied"
    ]


def test_the_difference_of_a_cleanup() -> None:
    """Cleanup names the annotation, too."""
    found = removal(node({SPEED: "1G"}), KEYS)
    lines = [f"- {SPEED}=1G", f"- annotation {KEYS.annotation}"]
    assert planned(found) == ["Node n1: 1 removed", *lines]
    assert done(found, run_negotiation(found, Server({SPEED: "1G"}))) == [
        "Node n1: 1 label changed",
        *lines,
    ]


KEY_POOL = [FLAVOR, SPEED, LEAF, IB_SPEED, ACC, f"{PREFIX}/speed.expected", "old.example/flavor"]
some_labels = st.dictionaries(st.sampled_from(KEY_POOL), st.sampled_from(["a", "b", "c"]))
one_answer = st.one_of(
    st.builds(
        denial,
        st.lists(st.sampled_from([*KEY_POOL, "x"])).map(" ".join),
        st.sampled_from([400, 403, 422]),
    ),
    st.lists(st.sampled_from(KEY_POOL), max_size=3).map(lambda keys: conflict(*keys)),
    st.sampled_from([Answer(401), Answer(409, "Conflict"), Answer(503)]),
)


@given(
    some_labels,
    some_labels,
    some_labels,
    st.sets(st.sampled_from(KEY_POOL)),
    st.booleans(),
    st.lists(one_answer),
)
def test_whatever_the_server_does(  # noqa: PLR0913, PLR0917 - the parts of a server's behaviour
    ours: dict[str, str],
    theirs: dict[str, str],
    wanted: dict[str, str],
    denied: set[str],
    names: bool,
    first: list[Answer],
) -> None:
    """It ends; only keys that are ours are sent; none is lost but those that the plan removes or
    others took.
    """
    wanted = {key: value for key, value in wanted.items() if KEYS.family(Field(LABEL, key))}
    theirs = {key: value for key, value in theirs.items() if ours.get(key, value) == value}
    server = Server(dict(ours), dict(theirs), denied.__contains__, names, list(first))
    found = plan(node(ours, {"other": theirs}, None), desired(wanted), KEYS)
    outcome = run_negotiation(found, server)
    assert outcome.requests == len(server.requests) <= MOST_REQUESTS
    sent = {Field(LABEL, key) for request in server.requests for key in labels_in(request)}
    assert all(one in found.managed or KEYS.family(one) in FAMILIES for one in sent)
    gone = ours.keys() - server.ours.keys()
    given_up = {held.key for held in outcome.left_alone}
    assert gone <= found.removed.keys() | given_up
    assert set(outcome.removed) <= found.removed.keys()


@given(st.lists(one_answer, min_size=1))
def test_it_ends(answers: list[Answer]) -> None:
    """A server that says the same few things for ever is not asked for ever."""
    said: list[Answer] = []

    def ask(_: Request) -> Answer:
        said.append(answers[len(said) % len(answers)])
        return said[-1]

    outcome = run_negotiation(a_plan({LEAF: "a"}, ALL), ask)
    assert outcome.requests == len(said) <= MOST_REQUESTS
    assert outcome.applied == {}


def test_annotations_go_where_they_belong() -> None:
    """The annotation is sent as an annotation."""
    server = Server()
    settle(server, ALL)
    assert annotations_in(server.requests[0]).keys() == {KEYS.annotation}
    assert Field(ANNOTATION, KEYS.annotation) in a_plan({}, ALL).wanted
