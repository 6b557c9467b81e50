"""From a tree of kernel files to labels and JSON, over trees that no kernel would make."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

from agent.model import Absent, Failed, Seen
from agent.output.document import Choices, document
from agent.output.table import render
from agent.sources import NAMES
from agent.sources.observe import SOURCES, observe
from tests.support.kernel_tree import CLASS, HOME, NET, Entries, Kernel, hca, host, netdev, routes
from tests.support.remembering import alone
from tests.support.sources import read_rdma

A, B = "0000:18:00.0", "0000:19:00.0"
BASE: Entries = (
    hca("ibp0", A)
    | hca("mlx5_1", B, "Ethernet", {1: "eth1", 2: None})
    | netdev("ibp24s0", A)
    | netdev("eth1", B, master="../../../../virtual/net/bond0")
    | netdev("eth2", B, dev_port="1", upper_v7="../v7")
    | routes("v7")
    | {f"{NET}/bond0/bonding/slaves": b"eth1 eth2\n", f"{NET}/v7": None}
)
PATHS = [
    *BASE,
    CLASS,
    NET,
    f"{CLASS}/ibp0/ports",
    f"{CLASS}/mlx5_1/device/net",
    "sys",
    "proc/net/ipv6_route",
]

# Kubernetes' limits, from its documentation of labels.
VALUE = re.compile(r"(?!.{64})(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?\Z")
KEY = re.compile(
    r"(?=.{1,253}/)[a-z0-9-]+(?:\.[a-z0-9-]+)*/(?!.{64})[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?\Z"
)

NASTY = [
    *(b"", b"\n", b"\0", b"\xff", b"\x1b[2J", b"-1", b"9" * 5000, b"..", b"../..", b"0"),
    *(b"4: ACTIVE", b"N/A", b"1e309"),
]
attributes = st.sampled_from([value for value in BASE.values() if isinstance(value, bytes)])
files = (
    st.binary(max_size=64)
    | st.sampled_from(NASTY)
    | attributes
    | st.text(max_size=20).map(str.encode)
)
links = st.sampled_from(
    ["", ".", "..", "/", "/etc/passwd", "../" * 99, "x", "../\x1b[2J", "../\udcff", f"../../{A}"]
)
names = st.sampled_from(
    [
        *("ports", "1", "256", "\u00e9", "\x1b", "a b", "-", "device", "upper_eth1", "upper_.."),
        "x" * 200,
    ]
)
paths = st.sampled_from(PATHS) | st.builds("{}/{}".format, st.sampled_from(PATHS), names)
errnos = st.sampled_from(sorted(errno.errorcode))
trees = st.dictionaries(paths, files | links | st.none(), max_size=12)
faults = st.dictionaries(paths, errnos, max_size=6)
removed = st.sets(st.sampled_from(PATHS), max_size=12)


def kernel(changes: Mapping[str, Any], errors: Mapping[str, int], gone: set[str]) -> Kernel:
    tree = {path: entry for path, entry in (BASE | dict(changes)).items() if path not in gone}
    try:
        return Kernel(tree, errors=errors)
    except OSError:  # an error below a link that leads outside: replay refuses such a snapshot
        reject()


def check(root: Kernel, backend: tuple[str, ...] = (), excluded: tuple[str, ...] = ()) -> None:
    observation = observe(host(root, excluded))
    assert not any("broke" in problem.text for problem in observation.problems)
    report = document(
        *alone(observation), Choices(backend_devices=backend, excluded_devices=excluded)
    )
    for key, value in report["labels"].items():
        assert KEY.match(key)
        assert VALUE.match(value)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert printable(json.dumps(report, ensure_ascii=False))
    assert printable(render(report, color=False).replace("\n", ""))


def printable(text: str) -> bool:
    return "\x1b" not in text and "\0" not in text and text.isprintable()


@pytest.mark.slow
@given(changes=trees, errors=faults, gone=removed)
@example(
    changes={f"{NET}/eth1/master": "../\udcff"},
    errors={f"{NET}/\udcff/bonding/slaves": errno.EIO},
    gone=set(),
)
@example(
    changes={f"{HOME}/{B}/infiniband/mlx5_1/ports/2/link_layer": b"Ether\n\tnet"},
    errors={},
    gone=set(),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_no_tree_breaks_the_agent(
    changes: dict[str, Any], errors: dict[str, int], gone: set[str]
) -> None:
    """Every label is valid, the report is JSON, and all of it is printable."""
    check(kernel(changes, errors, gone))


@pytest.mark.slow
@given(changes=trees, glob=st.sampled_from(["*", "ibp0", "mlx5_?", "[", "\u00e9"]))
@settings(max_examples=40)
def test_no_glob_breaks_the_agent(changes: dict[str, Any], glob: str) -> None:
    check(kernel(changes, {}, set()), backend=(glob,))
    check(kernel(changes, {}, set()), excluded=(glob,))


@pytest.mark.slow
@given(path=st.sampled_from(PATHS), number=errnos)
def test_one_error_costs_one_device_at_most(path: str, number: int) -> None:
    outcome = read_rdma(host(Kernel(BASE, errors={path: number}))).outcome
    if "ibp0" in path:
        assert isinstance(outcome, Seen)
        assert outcome.value[1] == healthy()[1]


def healthy() -> tuple[Any, ...]:
    outcome = read_rdma(host(Kernel(BASE))).outcome
    assert isinstance(outcome, Seen)
    return outcome.value


@pytest.mark.parametrize(
    ("root", "outcome", "speed"),
    [
        (Kernel(BASE), Seen, 400.0),
        (Kernel({f"{NET}/lo": None}), Absent, 0.0),
        (Kernel(BASE, errors={CLASS: errno.EIO}), Failed, None),
        (Kernel(BASE, errors={CLASS: errno.ETIMEDOUT}), Failed, None),
    ],
)
def test_the_three_outcomes(root: Kernel, outcome: type, speed: float | None) -> None:
    """Seen, absent and failed reach the report; absent and failed have a problem."""
    observation = observe(host(root))
    assert isinstance(observation.rdma, outcome)
    assert document(*alone(observation), Choices())["speed_gbps"] == speed
    assert any(problem.subject == "rdma" for problem in observation.problems) == (
        outcome is not Seen
    )


@pytest.mark.parametrize(
    ("number", "problems"), [(errno.ENOENT, 0), (errno.EIO, 1), (errno.ETIMEDOUT, 1)]
)
def test_a_boot_without_an_id(number: int, problems: int) -> None:
    """Only the boot ID is unknown then."""
    observation = observe(host(Kernel(BASE, errors={"proc/sys/kernel/random/boot_id": number})))
    assert (observation.boot_id, observation.node, observation.time) == (None, "n1", 0.0)
    assert isinstance(observation.rdma, Seen)
    assert len(observation.problems) == problems


def test_each_name_has_its_row() -> None:
    """The names stand apart, since `--help` does not load the sources."""
    assert [source.name for source in SOURCES] == [*NAMES]
