"""What `doctor` says of the queries of InfiniBand neighbors."""

from __future__ import annotations

import pytest

from agent.check import Step
from agent.infiniband.checks import checks
from agent.infiniband.exploration import Exploration
from agent.infiniband.umad import LIBRARY
from agent.model import Absent, Failed, Link, Neighbor, Problem, Seen
from agent.reasons import NeighborReason
from tests.support.observations import around, observation
from tests.support.sas import CABLES, LEAF, Administrator

UMADS = {"sys/class/infiniband_mad": ["abi_version", "issm0", "umad0", "umad1"]}
NEIGHBOR = Neighbor("L90.1.3", "7", None, None)  # type: ignore[arg-type]  # its facts are not read
SEEN = Seen((Link("ibp0", None, (NEIGHBOR,)), Link("ibp1", None, missing="link-down")))


def test_a_node_without_infiniband_needs_nothing() -> None:
    """Not even the kernel module."""
    (check,) = checks(around(observation(ib=Absent("no InfiniBand backend port"))))
    assert (check.is_there, check.missing) == (False, None)


def test_neighbors_are_counted() -> None:
    """Nothing is missing if a port has none because it has no link."""
    (check,) = checks(around(observation(ib=SEEN), UMADS))
    assert check.is_there
    assert check.text == "InfiniBand backend ports with a neighbor: 1 of 2"


@pytest.mark.parametrize("folders", [{}, {"sys/class/infiniband_mad": ["abi_version"]}])
def test_no_umad_device(folders: dict[str, list[str]]) -> None:
    (check,) = checks(around(observation(ib=SEEN), folders))
    assert (check.missing, check.command) == (Step.MODULE, "modprobe ib_umad")


@pytest.mark.parametrize(
    ("fault", "step", "command"),
    [("ENOENT", Step.DEVICE_FILE, "udevadm trigger"), ("EACCES", Step.PRIVILEGE, "sudo bwagent")],
)
def test_device_files(fault: str, step: Step, command: str) -> None:
    """They are one line; those of other kinds are not asked for."""
    asked = list[str]()

    def fault_of(path: str) -> str:
        asked.append(path)
        return fault

    (check,) = checks(around(observation(ib=SEEN), UMADS, device_fault=fault_of))
    assert asked == ["/dev/infiniband/umad0", "/dev/infiniband/umad1"]
    assert (check.missing, check.command.startswith(command)) == (step, True)
    assert check.text == f"device files in /dev/infiniband: umad0, umad1: {fault}"


def test_which_way_is_open_on_each_port() -> None:
    """By SMPs nothing is said; else which ports, by which way, and what opens the other."""
    by_sa = Neighbor("L90.1.3", "7", None, LEAF)
    links = (
        *SEEN.value,
        Link("ibp2", None, (by_sa,)),
        Link("ibp3", None, missing="no-sm"),
        Link("ibp4", None, missing="no-sm"),
    )
    count, sa, closed = checks(around(observation(ib=Seen(links)), UMADS))
    assert (count.text[-6:], sa.is_there, closed.is_there, closed.missing) == (
        "2 of 5",
        True,
        False,
        None,
    )
    assert sa.text.startswith("by the subnet administrator, since SMPs fail: ibp2; SMPs need a")
    assert closed.text.startswith(("ibp3 and ibp4: neither", "ibp3, ibp4: neither"))
    assert "`sminfo`" in closed.text


def test_the_library() -> None:
    """One line for all ports, beside the module that is missing, too."""
    text = f"{LIBRARY}: cannot open shared object file: No such file or directory"
    problems = tuple(Problem("ib", port, None, text) for port in ("ibp0", "ibp1"))
    module, library = checks(around(observation(ib=SEEN, problems=problems)))
    assert (module.missing, library.missing) == (Step.MODULE, Step.LIBRARY)
    assert library.text == text
    assert "libibumad3" in library.command


@pytest.mark.parametrize(
    ("reason", "step"),
    [(NeighborReason.NOT_PERMITTED, Step.PRIVILEGE), (NeighborReason.NO_UMAD, Step.DEVICE_FILE)],
)
def test_queries_that_were_not_sent(reason: NeighborReason, step: Step) -> None:
    """Though the files seem to be in order: a device cgroup, or a device that has just gone."""
    links = (*SEEN.value, Link("ibp2", None, missing=reason), Link("ibp3", None, missing=reason))
    (check,) = checks(around(observation(ib=Seen(links)), UMADS))
    assert (check.missing, check.text) == (step, f"queries of ibp2, ibp3: {reason}")


def test_a_helper_that_fails() -> None:
    (check,) = checks(around(observation(ib=Failed("smp helper for 8 devices: late")), UMADS))
    assert (check.missing, check.text) == (Step.DRIVER, "smp helper for 8 devices: late")


def above(outcome: Seen[Exploration] | Absent | Failed, *problems: str) -> list[tuple[bool, str]]:
    """Return what the lines about the switches above say."""
    told = tuple(Problem("tiers", "tiers", None, text) for text in problems)
    _, *lines = checks(around(observation(ib=SEEN, tiers=outcome, problems=told), UMADS))
    assert not any(line.missing for line in lines)
    start = "switches above the leaves: "
    assert all(line.text.startswith(start) for line in lines)
    return [(line.is_there, line.text.removeprefix(start)) for line in lines]


def test_the_switches_above() -> None:
    """A line a tier, why there is no more, and what is in the way of a subnet."""
    pods = Administrator(*CABLES)
    found = pods.explore([pods.port("leaf1")])
    found = found._replace(walked=("ibp0 port 1: no answer in 5000 ms",))
    assert above(Seen(found), "ibp1 port 1: no answer in 5000 ms") == [
        (True, "tier 1: spine1"),
        (True, "tier 2: core1"),
        (True, "by SMPs over directed routes, since ibp0 port 1: no answer in 5000 ms"),
        (False, "ibp1 port 1: no answer in 5000 ms"),
    ]
    alone = Administrator(("leaf1/1", "host1/1"))
    [line] = above(Seen(alone.explore([alone.port("leaf1")])))
    assert line == (False, "no more: no switch of the subnet is above")


@pytest.mark.parametrize(
    "text", ["ibp0: no subnet manager has configured the port", "SA reply: Status is 0x0700"]
)
def test_what_is_in_the_way_of_the_tiers(text: str) -> None:
    """The line, and what an exploration needs."""
    [(is_there, told)] = above(Failed(text))
    assert (is_there, told.startswith(f"{text}; --tiers needs the subnet")) == (False, True)


def test_without_umad_nothing_is_said_of_the_tiers() -> None:
    (check,) = checks(around(observation(ib=SEEN, tiers=Failed("not permitted")), {}))
    assert check.missing == Step.MODULE
