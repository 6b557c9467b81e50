"""Server-side apply against a server that conflicts, denies and fails: nothing owned is lost,
nothing of others is touched, and the negotiation ends.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.answers import KINDS, Answer, Cause, Failure, Request
from agent.kube.change import ForeignField, LabelChange, change_to, removal
from agent.kube.managed_fields import FAMILIES, LABEL, Field
from agent.kube.negotiation import MAX_NAMINGS, MAX_READS, Outcome, Refusal, Taken, negotiate
from agent.kube.nodes import get_node
from tests.support.api_server import (
    Server,
    a_change,
    annotations_in,
    conflict,
    denial,
    holding,
    labels_in,
    operations,
    replies,
)
from tests.support.nodes import ACCELERATOR_KEY as ACC
from tests.support.nodes import (
    FLAVOR,
    IB_SPEED,
    KEYS,
    LEAF,
    NOW,
    PREFIX,
    SPEED,
    desired,
    node,
    removed,
)

ALL = {FLAVOR: "roce", SPEED: "3200G", IB_SPEED: "3200G", ACC: "a.1"}
MAX_REQUESTS = 80  # of a server that refuses each key by itself and conflicts all the time
NODE = node({FLAVOR: "roce"})
GOOD = Answer(200, node=NODE)


def test_get_with_an_expired_token() -> None:
    """A 401 is answered with a second request, and not with a third."""
    unauthorized = Answer(401, message="Unauthorized")
    requests, kube = replies(unauthorized, GOOD)
    assert get_node(kube, "n1") == NODE
    assert requests == [{"operation": "get", "node": "n1"}] * 2
    found = get_node(replies(unauthorized, unauthorized)[1], "n1")
    assert isinstance(found, Failure)
    assert found.kind == "unauthorized"


def settle(server: Server, wanted: Mapping[str, str]) -> Outcome:
    """Plan for the server's labels, and negotiate."""
    return negotiate(a_change(server.labels(), wanted), server)


def test_accepted() -> None:
    """One request without force makes the Node as wanted."""
    server = holding({SPEED: "1G", LEAF: "a"})
    outcome = settle(server, ALL)
    assert server.labels() == ALL
    assert (outcome.applied, outcome.removed) == (dict(sorted(ALL.items())), (LEAF,))
    (request,) = server.requests
    assert (request["operation"], request["node"], request["force"]) == ("apply", "n1", False)
    assert request["body"]["metadata"]["uid"] == "u-1"
    assert annotations_in(request).keys() == {KEYS.annotation}
    assert outcome.node is not None


def test_a_key_that_is_accepted_and_not_stored() -> None:
    """A mutating webhook took one key out and gave another a value of its own: neither counts as
    applied, and both wait like refused keys. A label that the plan only carries is a change, too.
    """
    server = holding({SPEED: "1G", LEAF: "a"}, mutates={FLAVOR: None, SPEED: "9G", LEAF: None})
    outcome = settle(server, {FLAVOR: "roce", SPEED: "2G", LEAF: "a"})
    assert [one.key for one in outcome.refused] == [FLAVOR, SPEED]
    assert all("not stored" in one.text for one in outcome.refused)
    assert {FLAVOR, SPEED} <= outcome.to_postpone
    assert (outcome.applied, outcome.is_complete) == ({SPEED: "9G"}, False)
    assert outcome.changes == (LabelChange(LEAF, "a", None), LabelChange(SPEED, "1G", "9G"))


@pytest.mark.parametrize(
    ("ours", "others", "wanted", "left"),
    [
        pytest.param({}, {FLAVOR: "x"}, {FLAVOR: "roce"}, [], id="a key of the table is taken"),
        pytest.param({}, {KEYS.annotation: "x"}, {}, [], id="the annotation is taken"),
        pytest.param({}, {ACC: "b.2"}, {FLAVOR: "roce", ACC: "a.1"}, [ACC], id="one is left"),
        pytest.param({ACC: "a.1"}, {FLAVOR: "x", ACC: "b.2"}, ALL, [ACC], id="both at once"),
    ],
)
def test_conflicts(
    ours: dict[str, str], others: dict[str, str], wanted: dict[str, str], left: list[str]
) -> None:
    """In one more request a key is taken by force, or the accelerator's is left without it."""
    server, taken = holding(ours, dict(others)), others.keys() - {*left}
    outcome = settle(server, wanted)
    assert server.labels() == {key: value for key, value in wanted.items() if key not in left}
    assert KEYS.annotation in server.ours
    assert [request["force"] for request in server.requests] == [False, bool(taken)]
    assert {one.key for one in outcome.taken} == taken
    assert server.others == {key: others[key] for key in left}
    assert outcome.left_alone == tuple(
        ForeignField(key, others[key], wanted[key], ("kubectl-edit",)) for key in left
    )
    assert outcome.removed == ()


def test_the_value_of_a_key_that_is_left() -> None:
    """A conflict names the manager, the next response has the value."""
    found = node({FLAVOR: "roce"}, {"gfd": {ACC: "b.2"}})
    answers = [conflict(ACC, manager="gfd"), Answer(200, node=found)]
    wanted = a_change({}, {FLAVOR: "roce", ACC: "a.1"})
    outcome = negotiate(wanted, lambda _: answers.pop(0))
    assert outcome.left_alone == (ForeignField(ACC, "b.2", "a.1", ("gfd",)),)


def test_nothing_is_taken_by_a_request_that_fails() -> None:
    """The forced request after the conflict was not accepted."""
    answers = [conflict(SPEED), Answer(503, message="down")]
    outcome = negotiate(a_change({SPEED: "1G"}, {SPEED: "2G"}), lambda _: answers.pop(0))
    assert (outcome.taken, outcome.applied, outcome.requests) == ((), {}, 2)


def test_force_is_for_one_request() -> None:
    """The request after a forced one is without force, so it cannot take the accelerator's key."""
    server = holding({}, {FLAVOR: "x", ACC: "a.1"}, denies=lambda key: key.startswith(PREFIX))
    original, calls = server.__call__, []

    def changed_meanwhile(request: Request) -> Answer:
        calls.append(request)
        if len(calls) == 2:
            server.update(ACC, "b.2")
        return original(request)

    negotiate(a_change({}, {FLAVOR: "roce", ACC: "a.1"}), changed_meanwhile)
    assert server.others[ACC] == "b.2"
    assert ACC not in server.ours


def test_conflicts_without_end() -> None:
    """A manager that changes a key all the time ends the negotiation as a conflict."""
    outcome = negotiate(a_change({}, ALL), lambda _: conflict(FLAVOR))
    assert outcome.failure is not None
    assert outcome.failure.kind == "conflict"


def test_a_lost_key_is_not_removed() -> None:
    """A key that another manager took while it was carried along is not reported as removed."""
    kept = a_change({SPEED: "1G"}, {SPEED: "2G", ACC: "a.1"}, postponed=frozenset({SPEED}))
    server = holding({SPEED: "1G"}, {SPEED: "9G"})
    outcome = negotiate(kept, server)
    assert server.labels() == {ACC: "a.1"}
    assert server.others == {SPEED: "9G"}
    assert (outcome.removed, [held.key for held in outcome.left_alone]) == ((), [SPEED])


def test_denials_that_name_a_key() -> None:
    """A named key stays as it is, with status and message of its denial; others are applied."""
    said = [denial(f"we do not like {SPEED}.", 403), denial(f"not {FLAVOR}"), denial(ACC, 400)]
    server = holding({SPEED: "1G"}, first=said)
    outcome = settle(server, ALL)
    assert server.labels() == {SPEED: "1G", IB_SPEED: "3200G"}
    assert {*outcome.refused} == {
        Refusal(FLAVOR, 422, f"not {FLAVOR}"),
        Refusal(SPEED, 403, f"we do not like {SPEED}."),
        Refusal(ACC, 400, ACC),
    }
    assert (set(outcome.to_postpone), outcome.requests) == ({FLAVOR, SPEED, ACC}, 4)


def test_a_denial_that_names_none() -> None:
    """Each family is applied by itself, with the fields of the others unchanged."""
    server = holding({SPEED: "1G", LEAF: "a"}, denies=lambda key: "coreweave.cloud" in key)
    outcome = settle(server, ALL)
    assert server.labels() == {SPEED: "1G", LEAF: "a", ACC: "a.1"}
    assert outcome.to_postpone == {"P", "IB", "observed"}
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
    """A denial that names every key is treated like one that names none."""
    server = holding(
        denies=lambda key: "coreweave.cloud" in key,
        first=[denial(" ".join((*ALL, KEYS.annotation)))],
    )
    assert settle(server, ALL).applied == {ACC: "a.1"}


@pytest.mark.parametrize(
    ("wanted", "message", "applied", "to_postpone", "requests"),
    [
        pytest.param(
            *({FLAVOR: "ib", ACC: "b.2"}, f"not {FLAVOR}, not {ACC}"),
            *({ACC: "b.2"}, {"P"}, 3),
            id="it names two families: each is applied by itself",
        ),
        pytest.param(
            *({FLAVOR: "ib", SPEED: "2G", ACC: "a.1"}, f"not {FLAVOR}, not {SPEED}"),
            *({}, {FLAVOR, SPEED}, 1),
            id="it names all changes of one family: they are refused by name",
        ),
        pytest.param(
            *({FLAVOR: "roce", ACC: "a.1", SPEED: "1G"}, "no"),
            *({}, {"P"}, 1),
            id="one family changes: no second request",
        ),
    ],
)
def test_a_denial_of_families(
    wanted: dict[str, str], message: str, applied: object, to_postpone: object, requests: int
) -> None:
    """What it is about is not tried again, and all else is applied."""
    ours = {FLAVOR: "roce", ACC: "a.1"}
    server = holding(dict(ours), denies=lambda key: key == FLAVOR, first=[denial(message)])
    outcome = negotiate(change_to(node(ours), desired(wanted), KEYS), server)
    assert (outcome.applied, outcome.to_postpone) == (applied, to_postpone)
    assert outcome.requests == requests


def test_a_denial_key_by_key() -> None:
    """After MAX_NAMINGS denials of one key each, the whole family is refused."""

    def one_by_one(request: Request) -> Answer:
        refused = sorted(key for key in labels_in(request) if key.startswith(PREFIX))
        return denial(f"not {refused[0]}") if refused else server(request)

    server, many = holding(), {f"{PREFIX}/neighbors.current.ibp{n}.device": "x" for n in range(20)}
    outcome = negotiate(a_change({}, {**many, ACC: "a.1"}), one_by_one)
    assert server.labels() == {ACC: "a.1"}
    assert {refusal.key for refusal in outcome.refused} == many.keys()
    assert outcome.to_postpone == {*sorted(many)[:MAX_NAMINGS], "P"}
    assert outcome.requests == 1 + MAX_NAMINGS + 3


def test_a_denial_of_nothing() -> None:
    """A denial of a request without changes is a failure and refuses no key."""
    kept = change_to(node(ALL), desired(ALL), KEYS)
    outcome = negotiate(kept, lambda _: denial("no writes today"))
    assert outcome.refused == ()
    assert outcome.failure is not None
    assert outcome.failure.kind == "refused"
    assert outcome.failure.text.startswith("Node n1: ")


def test_a_denial_while_all_that_would_change_is_postponed() -> None:
    """It is about the request itself: what was left out of it is refused still, and no request
    failed. When it is tried again stays as it was.
    """
    wanted = desired({**ALL, SPEED: "1G", FLAVOR: "x"}, postponed=frozenset({"P", "observed"}))
    change = change_to(node(ALL, observed=None), wanted, KEYS)
    outcome = negotiate(change, lambda _: denial("no writes today"))
    assert outcome.failure is None
    assert outcome.refused == tuple(
        Refusal(key, 422, "no writes today") for key in (KEYS.annotation, FLAVOR, SPEED)
    )
    assert (outcome.to_postpone, outcome.requests) == (frozenset(), 1)


def test_a_rotated_token() -> None:
    """A 401 is answered with one more request, with the token read again; a second is a failure."""
    server = holding(first=[Answer(401, "Unauthorized", "Unauthorized")])
    outcome = settle(server, ALL)
    assert (server.labels(), outcome.requests) == (ALL, 2)
    outcome = negotiate(a_change({}, ALL), lambda _: Answer(401, "Unauthorized", "Unauthorized"))
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.requests) == ("unauthorized", 2)


UID = (Cause("FieldValueInvalid", "metadata.uid", "field is immutable"),)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(404, "NotFound", 'nodes "n1" not found'), "not-found"),
        (denial('User "x" cannot patch resource "nodes" in API group ""', 403), "forbidden"),
        (
            Answer(409, "Conflict", 'on nodes "n1": uid mismatch: no existing object was found'),
            "recreated",
        ),
        (Answer(422, "Invalid", "field is immutable", UID), "recreated"),
        (Answer(409, "Conflict", "the object has been modified"), "conflict"),
        (Answer(429, "TooManyRequests", "later", retry_after=7.0), "busy"),
        (Answer(500, "InternalError", "failed calling webhook"), "server"),
        (Answer(503, message="HTTP 503 with text/html: '<html>'"), "server"),
        (Answer(408), "timeout"),
        (Answer(407, message="authenticate"), "proxy"),
        (Answer(415, message="unsupported media type"), "refused"),
        *((Answer(error=kind, message="why"), kind) for kind in KINDS),
        (Answer(200, error="garbage", message="HTTP 200 with text/html"), "garbage"),
        (Answer(), "refused"),
    ],
)
def test_failures(answer: Answer, kind: str) -> None:
    """An answer that concerns no key is a failure of one line that names the Node."""
    outcome = negotiate(a_change({SPEED: "1G"}, ALL), lambda _: answer)
    assert outcome.failure is not None
    assert outcome.failure.kind == kind
    assert outcome.failure.text.startswith("Node n1: ")
    assert "\n" not in outcome.failure.text
    assert (outcome.applied, outcome.removed, outcome.requests) == ({}, (), 1)


def test_a_failure_on_the_way() -> None:
    """Changes that were accepted before a failure are in the outcome, with the failure."""
    server = holding({LEAF: "a"}, denies=lambda key: key == FLAVOR)
    asked: list[Request] = []

    def ask(request: Request) -> Answer:
        asked.append(request)
        return server(request) if len(asked) <= 3 else Answer(503, message="down")

    outcome = negotiate(a_change({LEAF: "a"}, ALL), ask)
    assert outcome.applied == {IB_SPEED: "3200G"}
    assert outcome.failure is not None
    assert "failed: down" in outcome.failure.text


OLD = "old.example/flavor"
MODIFIED = Answer(409, "Conflict", "Operation cannot be fulfilled: the object has been modified")
BOTH = {FLAVOR: "roce", OLD: "roce"}
WANTED = desired({FLAVOR: "roce", SPEED: "1G"}, now=NOW)


def versions(requests: list[Request]) -> list[str | None]:
    """Return the version in each apply."""
    bodies = [one["body"]["metadata"] for one in requests if one["operation"] == "apply"]
    return [metadata.get("resourceVersion") for metadata in bodies]


def test_a_refusal_of_removed_labels() -> None:
    """A refusal of labels that are not on the Node any more is followed by a GET and by a request
    without them.
    """
    server = holding({FLAVOR: "roce"}, denies=lambda key: key == OLD)
    outcome = negotiate(change_to(node(BOTH), WANTED, KEYS), server, is_current=False)
    assert operations(server.requests) == ["apply", "get", "apply"]
    assert (outcome.applied, outcome.refused, outcome.failure) == ({SPEED: "1G"}, (), None)
    assert server.labels() == {FLAVOR: "roce", SPEED: "1G"}


def test_a_refusal_of_an_unchanged_node() -> None:
    """The same request is not sent twice: after the GET the refused key is left out at once."""
    server = holding({FLAVOR: "roce"}, denies=lambda key: key == SPEED, names=True)
    found = change_to(node({FLAVOR: "roce"}), desired({FLAVOR: "x", SPEED: "1G"}), KEYS)
    outcome = negotiate(found, server, is_current=False)
    assert operations(server.requests) == ["apply", "get", "apply"]
    assert [refusal.key for refusal in outcome.refused] == [SPEED]
    assert outcome.applied == {FLAVOR: "x"}


@pytest.mark.parametrize("status", [400, 403, 422])
def test_one_read_for_all_refusals(status: int) -> None:
    """A server that refuses everything is asked for the Node once."""
    requests: list[Request] = []

    def refuse(request: Request) -> Answer:
        requests.append(request)
        is_get = request["operation"] == "get"
        return Answer(200, node=node(observed=None)) if is_get else denial("no", status)

    outcome = negotiate(a_change({}, {FLAVOR: "x", ACC: "a.1"}), refuse, is_current=False)
    assert operations(requests) == ["apply", "get", "apply", "apply", "apply"]
    assert outcome.requests == len(requests)
    assert outcome.to_postpone == {"P", "ACC", "observed"}


def test_a_conflict() -> None:
    """A conflict is followed by a GET, which gives the value that is taken over."""
    server = holding({}, {SPEED: "9G"})
    outcome = negotiate(
        a_change({SPEED: "1G"}, {SPEED: "1G", FLAVOR: "roce"}), server, is_current=False
    )
    assert operations(server.requests) == ["apply", "get", "apply"]
    assert outcome.taken == (Taken(SPEED, "kubectl-edit", "9G"),)
    assert (SPEED, "9G", "1G") in outcome.change.label_changes
    assert outcome.applied == {SPEED: "1G", FLAVOR: "roce"}


def test_a_current_node_is_not_read_again() -> None:
    """A plan for a Node that was just read is negotiated without a GET."""
    server = holding({}, {SPEED: "9G"}, denies=lambda key: key == FLAVOR, names=True)
    negotiate(a_change({}, {SPEED: "1G", FLAVOR: "roce"}), server)
    assert "get" not in operations(server.requests)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(403, "Forbidden", 'User "x" cannot get resource "nodes" in API group ""'),
        Answer(404, "NotFound", "no"),
        Answer(409, "Conflict", "odd"),
        conflict(SPEED),
        Answer(422, "Invalid", "odd"),
        Answer(503, message="down", retry_after=7.0),
        Answer(error="helper", message="killed"),
    ],
)
def test_a_get_that_fails(answer: Answer) -> None:
    """The negotiation ends with the failure of the GET; no key is refused."""
    requests: list[Request] = []

    def ask(request: Request) -> Answer:
        requests.append(request)
        return answer if request["operation"] == "get" else denial("no")

    outcome = negotiate(a_change({}, {FLAVOR: "x"}), ask, is_current=False)
    assert operations(requests) == ["apply", "get"]
    assert (outcome.refused, outcome.applied) == ((), {})
    assert outcome.failure is not None
    assert outcome.failure.retry_after == answer.retry_after


def test_a_newer_version() -> None:
    """Carried labels are sent as they are now: the request for an older version fails, and the
    values of a second agent are those of the GET.
    """
    changed = node({FLAVOR: "roce", OLD: "infiniband"}, version="2")
    requests, kube = replies(
        Answer(409, message=MODIFIED.message),
        Answer(200, node=changed),
        Answer(200, node=node({**BOTH, OLD: "infiniband", SPEED: "1G"}, version="3")),
    )
    found = change_to(node(BOTH, version="1"), WANTED, KEYS)
    outcome = negotiate(found, kube)
    assert (operations(requests), versions(requests)) == (["apply", "get", "apply"], ["1", "2"])
    assert labels_in(requests[2])[OLD] == "infiniband"
    assert (outcome.applied, outcome.failure) == ({SPEED: "1G"}, None)


def test_a_node_that_was_read_again_is_asked_for_without_force() -> None:
    """What was in conflict on the older one may be somebody else's now."""
    requests, kube = replies(
        conflict(SPEED),
        MODIFIED,
        Answer(200, node=node(BOTH, version="2")),
        Answer(200, node=node({**BOTH, SPEED: "1G"}, version="3")),
    )
    negotiate(change_to(node(BOTH, version="1"), WANTED, KEYS), kube)
    assert requests[2] == {"operation": "get", "node": "n1"}
    forces = [request["force"] for request in requests if request["operation"] == "apply"]
    assert forces == [False, True, False]


def test_a_node_that_changes_all_the_time() -> None:
    """The negotiation ends as a conflict after MAX_READS reads."""
    requests: list[Request] = []

    def ask(request: Request) -> Answer:
        requests.append(request)
        is_get = request["operation"] == "get"
        return Answer(200, node=node(BOTH, version=str(len(requests)))) if is_get else MODIFIED

    outcome = negotiate(change_to(node(BOTH, version="0"), WANTED, KEYS), ask)
    assert operations(requests) == ["apply", "get"] * MAX_READS + ["apply"]
    assert outcome.failure is not None
    assert outcome.failure.kind == "conflict"


def test_further_requests_have_the_version_of_the_last_answer() -> None:
    """After an accepted request the next one is for the version that it made."""
    no = denial("no")
    requests, kube = replies(no, Answer(200, node=node(BOTH, version="8")), no, no)
    found = change_to(
        node(BOTH, version="7", observed=None), desired({FLAVOR: "x", ACC: "a.1"}), KEYS
    )
    negotiate(found, kube)
    assert versions(requests) == ["7", "7", "8", "8"]


def test_a_refused_key_stays_refused_after_a_read() -> None:
    """A GET in the middle of a negotiation brings no refused key back."""
    requests, kube = replies(
        denial(f"not {SPEED}"),
        MODIFIED,
        Answer(200, node=node(BOTH, version="2")),
        Answer(200, node=node({**BOTH, FLAVOR: "x"}, version="3")),
    )
    found = change_to(node(BOTH, version="1"), desired({FLAVOR: "x", SPEED: "1G"}), KEYS)
    outcome = negotiate(found, kube)
    assert [SPEED in labels_in(requests[index]) for index in (0, 1, 3)] == [True, False, False]
    assert [refusal.key for refusal in outcome.refused] == [SPEED]


def test_a_recreated_node_during_a_negotiation() -> None:
    """With fields outside the table a recreated Node is a newer version, and is labeled."""
    anew = node({}, version="9", observed=None)
    anew["metadata"]["uid"] = "u-2"
    requests, kube = replies(MODIFIED, *[Answer(200, node=anew)] * 2)
    negotiate(change_to(node(BOTH, version="1"), WANTED, KEYS), kube)
    assert requests[2]["body"]["metadata"]["uid"] == "u-2"
    assert labels_in(requests[2]) == {FLAVOR: "roce", SPEED: "1G"}


def test_a_cleanup_of_a_node_that_changed() -> None:
    """A cleanup carries the labels of other prefixes as they are now."""
    changed = node({**BOTH, OLD: "new"}, version="2")
    requests, kube = replies(MODIFIED, Answer(200, node=changed), Answer(200, node=node()))
    negotiate(removal(node(BOTH, version="1"), KEYS), kube)
    assert labels_in(requests[2]) == {OLD: "new"}


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


@pytest.mark.slow
@given(
    st.tuples(some_labels, some_labels, some_labels),
    st.sets(st.sampled_from(KEY_POOL)),
    st.booleans(),
    st.lists(one_answer),
)
def test_whatever_the_server_does(
    labels: tuple[dict[str, str], dict[str, str], dict[str, str]],
    denied: set[str],
    names: bool,
    first: list[Answer],
) -> None:
    """Any negotiation ends, sends keys of the table and managed ones only, and loses none but those
    that the plan removes or other managers took.
    """
    ours, theirs, wanted = labels
    wanted = {key: value for key, value in wanted.items() if KEYS.family(Field(LABEL, key))}
    theirs = {key: value for key, value in theirs.items() if ours.get(key, value) == value}
    server = holding(dict(ours), dict(theirs), denies=denied.__contains__, names=names, first=first)
    found = change_to(node(ours, {"other": theirs}, None), desired(wanted), KEYS)
    outcome = negotiate(found, server)
    assert outcome.requests == len(server.requests) <= MAX_REQUESTS
    sent = {Field(LABEL, key) for request in server.requests for key in labels_in(request)}
    assert all(one in found.managed or KEYS.family(one) in FAMILIES for one in sent)
    gone = ours.keys() - server.ours.keys()
    given_up = {held.key for held in outcome.left_alone}
    assert gone <= removed(found).keys() | given_up
    assert set(outcome.removed) <= removed(found).keys()


@pytest.mark.slow
@given(st.lists(one_answer, min_size=1))
def test_it_ends(answers: list[Answer]) -> None:
    """A negotiation ends whatever the server repeats."""
    said: list[Answer] = []

    def ask(_: Request) -> Answer:
        said.append(answers[len(said) % len(answers)])
        return said[-1]

    outcome = negotiate(a_change({LEAF: "a"}, ALL), ask)
    assert outcome.requests == len(said) <= MAX_REQUESTS
    assert outcome.applied == {}
