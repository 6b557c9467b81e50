"""A switch keeps its name while it does not give it: answers in a row, and the names published."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.infiniband.node_description import switch_name
from agent.infiniband.switch_names import MAX_NAMES, TRIES, Answered, Name, Retry, SwitchNames
from tests.support.smps import LEAF

HOLD = 600.0
A, B = "00000000000000aa", "00000000000000bb"
NEW, OLD = "MF0;leaf-new:MQM9700/U1", "MF0;leaf-old:MQM9700/U1"
OLD_MODEL = "MF0;leaf-old:MQM9790/U1"
FACTORY = "Quantum Mellanox Technologies"
Step = tuple[float, str, str | None, str | None]  # time, GUID, NodeDescription, published device


def ask(
    names: SwitchNames, time: float, guid: str, description: str | None, interface: str = "ibp0"
) -> Name:
    facts = replace(LEAF, node_guid=guid, node_description=description)
    return names.name(interface, facts, Answered((interface, 1), time))


ROWS: dict[str, list[Step]] = {
    "named": [(0, A, OLD, "leaf-old"), (10, A, OLD_MODEL, "leaf-old")],
    "lost for hours": [
        *((0, A, OLD, "leaf-old"), *((at, A, None, "leaf-old") for at in range(10, 9999, 50)))
    ],
    "never named": [(0, A, None, None), (1, A, None, None), (2, A, None, A)],
    "named at the second try": [(0, A, None, None), (1, A, OLD, "leaf-old")],
    "unmanaged": [(0, A, None, None), (1, A, FACTORY, A), (2, A, None, A)],
    "empty at first": [(0, A, "", A), (1, A, OLD, "leaf-old")],
    "another node, lost": [(0, A, OLD, "leaf-old"), (1, B, None, B)],
    "another node, named": [(0, A, OLD, "leaf-old"), (1, B, NEW, "leaf-new")],
    "there and back": [(0, A, OLD, "leaf-old"), (1, B, None, B), (2, A, None, "leaf-old")],
    "renamed": [(0, A, OLD, "leaf-old"), (1, A, NEW, "leaf-old"), (2, A, NEW, "leaf-new")],
    "renamed, lost between": [
        *((0, A, OLD, "leaf-old"), (1, A, NEW, "leaf-old"), (2, A, None, "leaf-old")),
        *((3, A, NEW, "leaf-new"), (4, A, None, "leaf-new")),
    ],
    "never the same other name twice": [
        *((0, A, OLD, "leaf-old"), (1, A, NEW, "leaf-old"), (2, A, OLD, "leaf-old")),
        *((3, A, NEW, "leaf-old"), (4, A, "third", "leaf-old"), (5, A, NEW, "leaf-old")),
    ],
    "factory text confirms nothing": [
        *((0, A, OLD, "leaf-old"), (1, A, NEW, "leaf-old")),
        *((2, A, FACTORY, "leaf-old"), (3, A, NEW, "leaf-old")),
    ],
    "factory text for the hold": [
        *((0, A, OLD, "leaf-old"), (100, A, FACTORY, "leaf-old"), (300, A, None, "leaf-old")),
        *((699, A, "", "leaf-old"), (700, A, None, "leaf-old"), (701, A, FACTORY, A)),
        *((800, A, None, A), (900, A, NEW, "leaf-new")),
    ],
    "the name between restarts the hold": [
        *((0, A, OLD, "leaf-old"), (100, A, FACTORY, "leaf-old"), (650, A, OLD, "leaf-old")),
        *((750, A, FACTORY, "leaf-old"), (1349, A, FACTORY, "leaf-old"), (1350, A, FACTORY, A)),
    ],
}


@pytest.mark.parametrize("steps", ROWS.values(), ids=ROWS)
def test_answers_in_a_row(steps: list[Step]) -> None:
    """Each answer of the interface has the device that is published after it."""
    names = SwitchNames(HOLD, TRIES)
    published = [ask(names, time, guid, text).device for time, guid, text, _ in steps]
    assert published == [device for _, _, _, device in steps]


def test_an_answer_counts_once() -> None:
    names = SwitchNames(HOLD, TRIES)
    assert [ask(names, 1.0, A, None).device for _ in range(9)] == [None] * 9
    ask(names, 2.0, A, OLD)
    assert [ask(names, 3.0, A, NEW).device for _ in range(9)] == ["leaf-old"] * 9
    assert [ask(names, 4.0, A, NEW).device for _ in range(9)] == ["leaf-new"] * 9


def test_one_answer_is_enough_for_a_single_observation() -> None:
    """With one try the node GUID is published at once, as by `probe` and a replay."""
    assert ask(SwitchNames(), 0.0, A, None).device == A


@pytest.mark.parametrize(
    ("description", "problem"),
    [
        (OLD, None),
        (NEW, None),
        (None, "no answer to NodeDescription: leaf-old is kept"),
        (FACTORY, "factory NodeDescription: leaf-old is kept"),
    ],
)
def test_a_name_that_is_kept(description: str | None, problem: str | None) -> None:
    """Its problem is the same after every answer; the NodeDescription that it is from is kept."""
    names = SwitchNames(HOLD, TRIES)
    ask(names, 0.0, A, OLD)
    found = ask(names, 1.0, A, description)
    assert (found.device, found.problem) == ("leaf-old", problem)
    assert found.last_description == (None if description == OLD else OLD)


def test_a_node_guid_instead_of_a_name() -> None:
    """A lost description is a problem, the factory text of an unmanaged switch is none."""
    names = SwitchNames(HOLD, 2)
    assert ask(names, 0.0, A, None).problem == "no answer to NodeDescription"
    text = "no answer to NodeDescription: labeled by its node GUID"
    assert ask(names, 1.0, A, None).problem == text
    assert ask(names, 2.0, A, FACTORY).problem is None


def test_a_problem_is_one_printable_line() -> None:
    """A name from the annotation may have any characters."""
    names = SwitchNames()
    names.seed({"ibp0": (A, "evil\n\x1b[2J" + "x" * 1000)})
    problem = ask(names, 0.0, A, None).problem or ""
    assert problem.isprintable()
    assert len(problem) < 120


@pytest.mark.parametrize(
    ("seed", "guid", "description", "device"),
    [
        ((A, OLD), A, None, "leaf-old"),
        ((A, OLD), A, FACTORY, "leaf-old"),
        ((A, OLD), A, NEW, "leaf-old"),
        ((A, OLD), B, None, B),
        ((A, OLD), B, NEW, "leaf-new"),
        ((A, None), A, None, A),
        ((A, FACTORY), A, None, A),
        ((A, FACTORY), A, NEW, "leaf-new"),
        ((A, ""), A, None, A),
    ],
)
def test_the_far_ends_of_the_agent_before(
    seed: tuple[str, str | None], guid: str, description: str | None, device: str
) -> None:
    """They count as known, whatever answers came before they were read."""
    for early in (None, OLD, NEW):
        names = SwitchNames(HOLD, TRIES)
        ask(names, 0.0, A, early)
        names.seed({"ibp0": seed})
        assert ask(names, 1.0, guid, description).device == device


def test_an_interface_that_the_agent_before_did_not_know() -> None:
    """On a Node without annotation the answers before it was read count."""
    names = SwitchNames(HOLD, TRIES)
    ask(names, 0.0, A, OLD)
    names.seed({"ibp1": (B, NEW)})
    assert ask(names, 1.0, A, FACTORY).device == "leaf-old"


def test_a_name_that_another_interface_knows() -> None:
    """It is the name of a new far end with the same node GUID; its own answer is better."""
    names = SwitchNames(HOLD, TRIES)
    ask(names, 0.0, A, OLD, "ibp0")
    assert ask(names, 0.0, A, None, "ibp1").device == "leaf-old"
    assert ask(names, 0.0, A, FACTORY, "ibp2").device == "leaf-old"
    assert ask(names, 0.0, A, NEW, "ibp3").device == "leaf-new"
    assert ask(names, 0.0, B, None, "ibp4").device is None


def test_interfaces_with_one_node_guid_do_not_change_each_other() -> None:
    """Two nodes with a duplicate GUID keep their names."""
    names = SwitchNames(HOLD, TRIES)
    for time in range(5):
        assert ask(names, time, A, OLD, "ibp0").device == "leaf-old"
        assert ask(names, time, A, NEW, "ibp1").device == "leaf-new"
    assert ask(names, 9.0, A, None, "ibp0").device == "leaf-old"
    assert ask(names, 9.0, A, None, "ibp1").device == "leaf-new"


def test_names_are_forgotten_beyond_a_number() -> None:
    """A far end that changes its node GUID with every answer does not fill the memory."""
    names = SwitchNames(HOLD, TRIES)
    for number in range(MAX_NAMES + 1):
        ask(names, number, f"{number:016x}", f"leaf{number}")
    assert ask(names, 5000.0, f"{1:016x}", None).device == "leaf1"
    assert ask(names, 5001.0, f"{0:016x}", None).device == f"{0:016x}"


def retries(names: SwitchNames, *steps: tuple[float, str | None]) -> list[Retry | None]:
    found = []
    for time, description in steps:
        ask(names, time, A, description)
        found.append(names.retry(Answered(("ibp0", 1), time)))
    return found


def test_answers_without_the_known_name_are_repeated() -> None:
    """They are counted until the name is back; with factory text one is due when the hold ends."""
    names = SwitchNames(HOLD, TRIES)
    found = retries(
        names, (0, OLD), (1, None), (2, None), (3, FACTORY), (4, FACTORY), (5, OLD), (6, None)
    )
    assert found == [None, Retry(0), Retry(1), Retry(2, 603), Retry(3, 603), None, Retry(0)]
    assert retries(SwitchNames(), (0, FACTORY), (1, FACTORY), (2, OLD)) == [
        Retry(0),
        Retry(1),
        None,
    ]


def test_another_name_is_asked_for_again_soon() -> None:
    """Its first retry is not late, however many there were before."""
    names = SwitchNames(HOLD, TRIES)
    found = retries(names, (0, OLD), (1, None), (2, None), (3, None), (4, NEW), (5, None))
    assert found[-3:] == [Retry(2), Retry(0), Retry(1)]
    assert names.is_unconfirmed()
    assert retries(names, (6, NEW)) == [None]
    assert not names.is_unconfirmed()


def test_an_event_starts_the_retries_again() -> None:
    """The far end may be another."""
    names = SwitchNames(HOLD, TRIES)
    retries(names, (0, OLD), (1, None), (2, None), (3, None))
    names.trigger()
    assert retries(names, (4, None), (5, None)) == [Retry(0), Retry(1)]


def test_the_first_retry_of_a_port_with_several_interfaces() -> None:
    """An answer that is not the last one of any makes none due."""
    names = SwitchNames(HOLD, TRIES)
    for interface, times in (("ibp0", (1, 2, 3)), ("ibp1", (3,))):
        for time in times:
            facts = replace(LEAF, node_guid=A, node_description=None)
            names.name(interface, facts, Answered(("smi0", 1), time))
    assert names.retry(Answered(("smi0", 1), 3)) == Retry(0)
    assert names.retry(Answered(("smi0", 1), 2)) is None
    assert names.retry(Answered(("smi1", 1), 3)) is None


answers = st.lists(
    st.tuples(
        st.sampled_from([A, B]),
        st.sampled_from([None, "", FACTORY, OLD, OLD_MODEL, NEW, "third"]),
        st.integers(1, 400),
    ),
    min_size=1,
    max_size=30,
)


@given(answers)
def test_any_answers(rows: list[tuple[str, str | None, int]]) -> None:
    """The device is the node GUID or a name that this node gave; a name that it gives twice in a
    row is published; without its GUID changing, a name is lost only to factory text for the hold;
    whatever is not the given name is asked for again.
    """
    names, time = SwitchNames(HOLD, TRIES), 0
    given: dict[str, set[str]] = {A: set(), B: set()}
    before: tuple[str, str | None, str | None] = ("", None, None)
    factory = 0
    for guid, text, wait in rows:
        time += wait
        name = switch_name(text) if text else None
        given[guid] |= {name} if name else set()
        device = ask(names, time, guid, text).device
        assert device in {guid, None, *given[guid]}
        if before[:2] == (guid, name) and name:
            assert device == name
        factory = factory + wait if name is None and before[0] == guid else 0
        if before[0] == guid and before[2] in given[guid] and device not in given[guid]:
            assert text is not None
            assert factory >= HOLD
        settled = names.retry(Answered(("ibp0", 1), time)) is None
        assert settled == (name is not None and device == name)
        before = guid, name, device
