"""A switch keeps its name while it does not give it: answers in a row, and the names published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.infiniband.switch_names import MAX_NAMES, Answered, Name, SwitchNames
from agent.node_description import switch_name
from tests.support.smps import LEAF

A, B = "00000000000000aa", "00000000000000bb"
NEW, OLD = "MF0;leaf-new:MQM9700/U1", "MF0;leaf-old:MQM9700/U1"
OLD_MODEL = "MF0;leaf-old:MQM9790/U1"
FACTORY = "Quantum Mellanox Technologies"
Step = tuple[float, str, str | None, str | None]  # time, GUID, NodeDescription, published device


def ask(
    names: SwitchNames, time: float, guid: str, description: str | None, interface: str = "ibp0"
) -> Name:
    facts = LEAF._replace(node_guid=guid, node_description=description)
    return names.name(interface, facts, Answered((interface, 1), time))


DEFAULTS = ["MF0;localhost:MQM9700/U1", "MF0;switch:MQM9700/U1", "MF0;MQM9700:MQM9700/U1", "switch"]
ROWS: dict[str, list[Step]] = {
    "named": [(0, A, OLD, "leaf-old"), (10, A, OLD_MODEL, "leaf-old")],
    "lost for hours": [
        *((0, A, OLD, "leaf-old"), *((at, A, None, "leaf-old") for at in range(10, 9999, 50)))
    ],
    "factory text for hours": [
        *((0, A, OLD, "leaf-old"), *((at, A, FACTORY, "leaf-old") for at in range(10, 9999, 50))),
        (10_000, A, NEW, "leaf-new"),
    ],
    "default host names": [
        *(
            (0, A, OLD, "leaf-old"),
            *((at, A, text, "leaf-old") for at, text in enumerate(DEFAULTS)),
        ),
        *((9, B, text, B) for text in DEFAULTS),
    ],
    "never named": [(0, A, None, A), (1, A, None, A), (2, A, OLD, "leaf-old")],
    "unmanaged": [(0, A, None, A), (1, A, FACTORY, A), (2, A, None, A)],
    "empty at first": [(0, A, "", A), (1, A, OLD, "leaf-old")],
    "another node, lost": [(0, A, OLD, "leaf-old"), (1, B, None, B)],
    "another node, named": [(0, A, OLD, "leaf-old"), (1, B, NEW, "leaf-new")],
    "there and back": [(0, A, OLD, "leaf-old"), (1, B, None, B), (2, A, None, "leaf-old")],
    "renamed": [(0, A, OLD, "leaf-old"), (1, A, NEW, "leaf-new"), (2, A, None, "leaf-new")],
}


@pytest.mark.parametrize("steps", ROWS.values(), ids=ROWS)
def test_answers_in_a_row(steps: list[Step]) -> None:
    """Each answer of the interface has the device that is published after it."""
    names = SwitchNames()
    published = [ask(names, time, guid, text).device for time, guid, text, _ in steps]
    assert published == [device for _, _, _, device in steps]


def test_an_answer_counts_once() -> None:
    names = SwitchNames()
    assert [ask(names, 1.0, A, None).device for _ in range(9)] == [A] * 9
    assert names.retry(Answered(("ibp0", 1), 1.0)) == 0


@pytest.mark.parametrize(
    ("description", "problem"),
    [
        (OLD, None),
        (None, "no answer to NodeDescription: leaf-old is kept"),
        (FACTORY, "factory NodeDescription: leaf-old is kept"),
    ],
)
def test_a_name_that_is_kept(description: str | None, problem: str | None) -> None:
    """Its problem is the same after every answer; the NodeDescription that it is from is kept."""
    names = SwitchNames()
    ask(names, 0.0, A, OLD)
    found = ask(names, 1.0, A, description)
    assert (found.device, found.problem) == ("leaf-old", problem)
    assert found.last_description == (None if description == OLD else OLD)


def test_a_node_guid_instead_of_a_name() -> None:
    """A lost description is a problem, the factory text of an unmanaged switch is none."""
    names = SwitchNames()
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
        ((A, OLD), A, NEW, "leaf-new"),
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
        names = SwitchNames()
        ask(names, 0.0, A, early)
        names.seed({"ibp0": seed})
        assert ask(names, 1.0, guid, description).device == device


def test_an_interface_that_the_agent_before_did_not_know() -> None:
    """On a Node without annotation the answers before it was read count."""
    names = SwitchNames()
    ask(names, 0.0, A, OLD)
    names.seed({"ibp1": (B, NEW)})
    assert ask(names, 1.0, A, FACTORY).device == "leaf-old"


def test_an_interface_that_was_renamed_meanwhile() -> None:
    """Its first answer may come before the Node is read: the node GUID has the name."""
    names = SwitchNames()
    assert ask(names, 1, A, None, "renamed0").device == A
    names.seed({"ibp0": (A, OLD)})
    assert ask(names, 1, A, None, "renamed0").device == "leaf-old"


def test_a_name_that_another_interface_knows() -> None:
    """It is the name of a new far end with the same node GUID; its own answer is better."""
    names = SwitchNames()
    ask(names, 0.0, A, OLD, "ibp0")
    assert ask(names, 0.0, A, None, "ibp1").device == "leaf-old"
    assert ask(names, 0.0, A, FACTORY, "ibp2").device == "leaf-old"
    assert ask(names, 0.0, A, NEW, "ibp3").device == "leaf-new"
    assert ask(names, 0.0, B, None, "ibp4").device == B


def test_interfaces_with_one_node_guid_do_not_change_each_other() -> None:
    """Two nodes with a duplicate GUID keep their names."""
    names = SwitchNames()
    for time in range(5):
        assert ask(names, time, A, OLD, "ibp0").device == "leaf-old"
        assert ask(names, time, A, NEW, "ibp1").device == "leaf-new"
    assert ask(names, 9.0, A, None, "ibp0").device == "leaf-old"
    assert ask(names, 9.0, A, None, "ibp1").device == "leaf-new"


def test_names_are_forgotten_beyond_a_number() -> None:
    """A far end that changes its node GUID with every answer does not fill the memory."""
    names = SwitchNames()
    for number in range(MAX_NAMES + 1):
        ask(names, number, f"{number:016x}", f"leaf{number}")
    assert ask(names, 5000.0, f"{1:016x}", None).device == "leaf1"
    assert ask(names, 5001.0, f"{0:016x}", None).device == f"{0:016x}"


def retries(names: SwitchNames, *steps: tuple[float, str | None]) -> list[int | None]:
    found = []
    for time, description in steps:
        ask(names, time, A, description)
        found.append(names.retry(Answered(("ibp0", 1), time)))
    return found


def test_answers_without_a_name_are_repeated() -> None:
    """They are counted until there is one."""
    names = SwitchNames()
    found = retries(names, (0, OLD), (1, None), (2, None), (3, FACTORY), (4, NEW), (5, None))
    assert found == [None, 0, 1, 2, None, 0]
    assert retries(SwitchNames(), (0, FACTORY), (1, FACTORY), (2, OLD)) == [0, 1, None]


def test_an_event_starts_the_retries_again() -> None:
    """The far end may be another."""
    names = SwitchNames()
    retries(names, (0, OLD), (1, None), (2, None), (3, None))
    names.trigger()
    assert retries(names, (4, None), (5, None)) == [0, 1]


def test_the_first_retry_of_a_port_with_several_interfaces() -> None:
    """An answer that is not the last one of any makes none due."""
    names = SwitchNames()
    for interface, times in (("ibp0", (1, 2, 3)), ("ibp1", (3,))):
        for time in times:
            facts = LEAF._replace(node_guid=A, node_description=None)
            names.name(interface, facts, Answered(("smi0", 1), time))
    assert names.retry(Answered(("smi0", 1), 3)) == 0
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
    """The device is the last name that this node gave, its node GUID if it gave none; whatever is
    no name is asked for again.
    """
    names, time = SwitchNames(), 0
    last: dict[str, str] = {}
    for guid, text, wait in rows:
        time += wait
        name = switch_name(text) if text else None
        last |= {guid: name} if name else {}
        assert ask(names, time, guid, text).device == last.get(guid, guid)
        retry = names.retry(Answered(("ibp0", 1), time))
        assert (retry is None) is (name is not None)
