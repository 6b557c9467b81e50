"""Metrics of a node; names from the fabric neither forge nor multiply series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from agent.infiniband.perf import Counters
from agent.labels.render import Rendered
from agent.memory import Fact
from agent.model import Failed, Gpu, IbNeighbor, Link, Neighbor, Problem, Seen
from agent.output.backend import ABSENT
from agent.reasons import HoldReason, NeighborReason
from agent.sources import NAMES as SOURCES
from agent.telemetry.metrics import (
    COUNTED,
    COUNTER,
    GAUGE,
    MAX_LABEL_LENGTH,
    MAX_NEIGHBORS,
    MAX_PORTS,
    OBSERVED,
    OTHER,
    PHYSICAL_STATES,
    PORT_STATES,
    PROCESS,
    Exposition,
    Metric,
    Metrics,
    OwnProcess,
    RowCollector,
    Sample,
)
from tests.support.devices import eth, ib, plain, port
from tests.support.documents import between
from tests.support.exposition import (
    LINK_ERRORS,
    SICK,
    complete,
    cycle,
    fed,
    neighbor,
    observation,
    text,
)
from tests.support.kernel_tree import gpu, nic
from tests.support.machines import MACHINES, observed
from tests.support.remembering import knowing
from tests.support.running import World

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


SWITCH = IbNeighbor("switch", "b0cf0e0300d66c81", None, 3, None)
ROWS: tuple[Metric[Any], ...] = (*OBSERVED, *COUNTED)
OWN = tuple(OwnProcess().collect())
NAMES = {*(row.name for row in ROWS), *(one.name + "_total" * (one.type == COUNTER) for one in OWN)}


def series(text: str, parse: Any = text_string_to_metric_families) -> Series:
    """Parse an exposition; a duplicate series fails the test."""
    found: Series = {}
    for metric in parse(text):
        for sample in metric.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def of(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one metric, by the values of its labels in the table's order."""
    labels = next(row.labels for row in ROWS if row.name == name)
    found = series(text(metrics))
    return {
        tuple(dict(pairs)[label] for label in labels): value
        for (one, pairs), value in found.items()
        if one == name
    }


# The format.

LABEL = st.text(st.characters(codec=None), max_size=300)


class One(RowCollector[str]):
    """A collector of one metric `m`."""

    def __init__(self, labels: tuple[str, ...], *samples: Sample, kind: str = GAUGE) -> None:
        super().__init__((Metric("m_total", kind, "Help.", labels, lambda _: samples),), lambda: "")

    def text(self) -> str:
        return generate_latest(self).decode()


@given(LABEL, st.floats(allow_nan=False) | st.integers(-(1 << 53), 1 << 53))
def test_any_label_value_can_be_parsed(text: str, number: float) -> None:
    """One line whatever the characters, of a bounded length, with the exact number."""
    lines = One(("l",), ((text,), number)).text()
    assert lines.count("\n") == 3
    assert "\r" not in lines
    [((_, labels), value)] = series(lines).items()
    assert len(dict(labels)["l"]) <= MAX_LABEL_LENGTH
    assert float(value) == float(number)


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\\nb", "é→", "", 'x"} 1\nup{a="'])
def test_printable_text_is_unaltered(text: str) -> None:
    """Quotes and backslashes survive the round trip; a line break becomes an escape."""
    [(_, labels)] = series(One(("l",), ((text,), 1)).text())
    assert dict(labels)["l"] == text.replace("\n", "\\n")


def test_equal_labels_are_one_series() -> None:
    """The first sample counts, also where labels are equal only after the cut; None is left out."""
    long = "a" * 200
    found = ((("a",), 1), (("b",), None), (("a",), 2), ((long + "x",), 3), ((long + "y",), 4))
    assert sorted(series(One(("l",), *found).text()).values()) == [1, 3]
    assert series(One((), ((), None)).text()) == {}


def test_both_formats_have_the_same_series() -> None:
    metrics = fed(observation([ib("ibp0", 1)]), rdma=0.1)
    exposition = Exposition(metrics)
    content_type, new = exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    old = exposition()[1].decode()
    names = {name for name, _ in series(old)}
    assert {name for name, _ in series(new.decode(), parse_openmetrics)} == names
    assert {"bwagent_observations_total", "bwagent_port_info", "process_open_fds"} <= names


def test_a_scrape_has_what_happened_since_the_last_one() -> None:
    """The text of an observation's rows is kept until another observation or another format."""
    metrics = fed(observation([ib("ibp0", 1)]))
    exposition = Exposition(metrics)

    def states(accept: str = "") -> list[str]:
        lines = exposition(accept)[1].decode().splitlines()
        names = ("bwagent_port_state", "bwagent_keys_refused ")
        return [line for line in lines if line.startswith(names) and not line.endswith(" 0.0")]

    active = 'bwagent_port_state{interface="ibp0",state="ACTIVE"} 1.0'
    assert states() == [active]
    metrics.update(keys_refused=1)
    assert (
        states() == states("application/openmetrics-text") == [active, "bwagent_keys_refused 1.0"]
    )
    metrics.observed(cycle(observation([ib("ibp0", 1, port(state="DOWN"))])), {})
    down = active.replace("ACTIVE", "DOWN")
    assert states() == states("application/openmetrics-text") == [down, "bwagent_keys_refused 1.0"]


def test_a_metric_without_samples_is_not_exposed() -> None:
    assert "bwagent_last_applied_timestamp_seconds" not in text(Metrics())


def test_reported_findings() -> None:
    metrics = fed(observation([ib("ibp0", 1)]))
    names = ("bwagent_findings", "bwagent_plan_rows", "bwagent_verified_timestamp_seconds")
    assert not any(name in text(metrics) for name in names)
    findings = (("duplicate", "ibp0"), ("duplicate", "ibp0"), ("speed", ""))
    metrics.update(findings=findings, plan_rows=8, verified_at=60.0)
    assert [of(metrics, name) for name in names] == [
        {("duplicate", "ibp0"): 1, ("speed", ""): 1},
        {(): 8},
        {(): 60.0},
    ]
    metrics.update(findings=(), plan_rows=None, verified_at=None)
    assert not any(name in text(metrics) for name in names)


def test_metrics_can_be_selected() -> None:
    """`/metrics?name[]=` restricts them to some names, of the process too."""
    names = {"bwagent_ports", "process_open_fds"}
    some = Exposition(fed(observation([ib("ibp0", 1)])))("", sorted(names))[1]
    assert {name for name, _ in series(some.decode())} == names


# The values.


def test_the_errors_of_a_link() -> None:
    """Each counter of an end that was read, and the bad end of a link that has errors."""
    seen = observation([plain(ib("ibp0", 1))])
    metrics = fed(seen._replace(link_errors=Seen(LINK_ERRORS)))
    counters = of(metrics, "bwagent_link_errors_total")
    assert counters == {
        ("ibp0", "near", name): 7 * (name == "symbol_error") for name in Counters._fields
    }
    assert of(metrics, "bwagent_link_unstable") == {("ibp1", "near"): 1}
    assert not of(fed(seen), "bwagent_link_errors_total")


def test_a_nic_that_is_unhealthy() -> None:
    """A series for each reporter in error, and none of the others."""
    seen = observation([plain(ib("ibp0", 1))])._replace(nics=SICK)
    assert of(fed(seen), "bwagent_nic_unhealthy") == {("0000:18:00.0", "fw_fatal"): 1}


def test_questions_about_the_switches_above() -> None:
    """SMPs have no outcome."""
    assert of(complete(), "bwagent_tier_questions_total") == {("answered",): 0, ("no-answer",): 1}
    assert of(complete(), "bwagent_tier_smps_total") == {(): 40}


def test_a_port() -> None:
    """A port has its properties, its state as an enumeration, rates in bytes per second, and the
    HCA's counters.
    """
    device = plain(ib("ibp0", 1, fw_ver="28.39"), state="INIT", link_downed=3)
    metrics = fed(observation([device]))
    info = ("ibp0", "ibp0", "1", "0000:01:00.0", "", "InfiniBand")
    assert of(metrics, "bwagent_port_info") == {(*info, "MT4129", "MT_0000000838", "28.39"): 1}
    states = of(metrics, "bwagent_port_state")
    assert {state for (_, state), value in states.items() if value} == {"INIT"}
    assert {state for _, state in states} == {*PORT_STATES, ABSENT, OTHER}
    physical = of(metrics, "bwagent_port_physical_state")
    assert {state for (_, state), value in physical.items() if value} == {"LinkUp"}
    assert {state for _, state in physical} == {*PHYSICAL_STATES, OTHER}
    assert of(metrics, "bwagent_port_rate_bytes_per_second") == {("ibp0",): 50e9}
    assert of(metrics, "bwagent_port_counted_bytes_per_second") == {("ibp0",): 0}
    assert of(metrics, "bwagent_port_link_downed_total") == {("ibp0",): 3}
    assert of(metrics, "bwagent_speed_bytes_per_second") == {(): 0}


def test_a_port_of_which_little_is_known() -> None:
    device = plain(ib("ibp0", 1), state=None, rate_gbps=None, link_downed=None)
    metrics = fed(observation([device]))
    states = of(metrics, "bwagent_port_state")
    assert {state for (_, state), value in states.items() if value} == {OTHER}
    for name in ("rate_bytes_per_second", "counted_bytes_per_second", "link_downed_total"):
        assert of(metrics, f"bwagent_port_{name}") == {}


def test_ports_that_do_not_count_are_only_counted() -> None:
    """A host has a thousand virtual functions."""
    functions = (ib(f"vf{bus}", bus, virtual_function=True) for bus in range(2, 9))
    metrics = fed(observation([ib("ibp0", 1), *functions]))
    assert of(metrics, "bwagent_ports") == {("backend",): 1, ("ignored",): 7}
    assert {key[0] for key in of(metrics, "bwagent_port_info")} == {"ibp0"}


def test_the_text_is_of_the_last_observation() -> None:
    """Text rendered for one observation is not reused for the next, and ages change without
    a new one.
    """
    links = (Link("mlx5_0", "eth0", (neighbor(),)),)
    metrics = fed(observation([eth("mlx5_0", 0)], lldp=Seen(links)))
    assert set(of(metrics, "bwagent_port_rate_bytes_per_second")) == {("mlx5_0",)}
    metrics.frames_repeated({"eth0"}, 1234.0)
    assert of(metrics, "bwagent_neighbor_last_seen_timestamp_seconds") == {("mlx5_0",): 1234.0}
    metrics.observed(cycle(observation([ib("ibp0", 1)])), {})
    assert set(of(metrics, "bwagent_port_rate_bytes_per_second")) == {("ibp0",)}


def test_flaps_are_counted_when_a_port_leaves_active() -> None:
    """Down, gone and back, down again; what could not be read is no flap."""
    up, metrics = ib("ibp0", 1), Metrics()
    down, blind = plain(up, state="DOWN"), plain(up, state=None)
    for device in (down, up, blind, up, down, down, None, up, down):
        metrics.observed(cycle(observation([device] if device else [])), {})
    assert of(metrics, "bwagent_port_flaps_total") == {("ibp0",): 2}


LOST = (Fact("ibp3", "0000:5e:00.0", lost_since=1_800_000_000),)


def test_a_port_that_left_the_bus() -> None:
    """Its series stay: absent instead of ACTIVE, which is a flap, and no part of the speed."""
    metrics = fed(observation([ib("ibp0", 1), ib("ibp3", 0x5E)]))
    assert of(metrics, "bwagent_backend_ports_lost") == {}
    metrics.observed(cycle(*knowing(observation([ib("ibp0", 1)]), lost=LOST)), {})
    states = of(metrics, "bwagent_port_state")
    assert states["ibp3", "ACTIVE"] == 0
    assert states["ibp3", "absent"] == states["ibp0", "ACTIVE"] == 1
    info = ("ibp3", "", "", "0000:5e:00.0", "", "", "", "", "")
    assert of(metrics, "bwagent_port_info")[info] == 1
    assert of(metrics, "bwagent_port_counted_bytes_per_second")["ibp3",] == 0
    assert of(metrics, "bwagent_port_flaps_total")["ibp3",] == 1
    assert of(metrics, "bwagent_backend_ports_lost") == {(): 1}


def test_a_lost_port_whose_name_another_has() -> None:
    """After a renumbering it has its address in its name."""
    metrics = fed(*knowing(observation([ib("ibp3", 1)]), lost=LOST))
    states = of(metrics, "bwagent_port_state")
    assert states["ibp3", "ACTIVE"] == states["ibp3@0000:5e:00.0", "absent"] == 1


def test_a_port_without_driver_is_absent() -> None:
    """It is not lost; its part of the speed is the one that is held."""
    held = Fact("ibp3", "0000:5e:00.0", gbps=400.0, state_why=HoldReason.DEVICE_GONE)
    metrics = fed(*knowing(observation([ib("ibp0", 1)]), held))
    assert of(metrics, "bwagent_port_state")["ibp3", "absent"] == 1
    assert of(metrics, "bwagent_port_counted_bytes_per_second")["ibp3",] == 50e9
    assert of(metrics, "bwagent_backend_ports_lost") == {(): 0}


@pytest.mark.slow
def test_flaps_are_not_remembered_for_ever() -> None:
    metrics = Metrics()
    for number in range(MAX_PORTS + 2):
        up = ib(f"rxe{number}", 1)
        for device in (up, plain(up, state="DOWN")):
            metrics.observed(cycle(observation([device])), {})
    assert metrics.snapshot.flaps[f"rxe{number}"] == 1
    assert len(metrics.snapshot.flaps) <= MAX_PORTS


def test_neighbors() -> None:
    """All of a port, the selected one marked; both protocols."""
    devices = [eth("mlx5_0", 1), eth("mlx5_1", 2)]
    links = (
        Link("mlx5_0", "eth1", (neighbor("a"), neighbor("b", age=0.5))),
        Link("mlx5_1", "eth2", missing="silent"),
    )
    switch = Link("ibp0", None, (Neighbor("L1", "3", None, SWITCH),))
    metrics = fed(observation(devices, lldp=Seen(links), ib=Seen((switch,))))
    assert of(metrics, "bwagent_neighbor_info") == {
        ("mlx5_0", "lldp", "a", "swp1", "", "00:1c:73:00:00:01", "true"): 1,
        ("mlx5_0", "lldp", "b", "swp1", "", "00:1c:73:00:00:01", "false"): 1,
        ("ibp0", "smp", "L1", "3", "", "b0cf0e0300d66c81", "true"): 1,
    }
    assert of(metrics, "bwagent_neighbors") == {("mlx5_0",): 2, ("mlx5_1",): 0, ("ibp0",): 1}
    assert of(metrics, "bwagent_neighbor_missing") == {("mlx5_1", "silent"): 1}
    last_seen = "bwagent_neighbor_last_seen_timestamp_seconds"
    assert of(metrics, last_seen) == {("mlx5_0",): 999.5, ("ibp0",): 1000.0}
    # eth2 has no neighbor, eth9 is unknown
    metrics.frames_repeated({"eth1", "eth2", "eth9"}, 1030.0)
    assert of(metrics, last_seen) == {("mlx5_0",): 1030.0, ("ibp0",): 1000.0}


def test_a_neighbor_that_changed_its_name_leaves_nothing() -> None:
    """A thousand names, one series."""
    metrics = Metrics()
    for number in range(1000):
        link = Link("mlx5_0", "eth1", (neighbor(f"n{number}"),))
        metrics.observed(cycle(observation([eth("mlx5_0", 1)], lldp=Seen((link,)))), {})
    assert [key[2] for key in of(metrics, "bwagent_neighbor_info")] == ["n999"]


NAME = st.text(st.characters(codec=None), max_size=255)
NEIGHBORS = st.builds(neighbor, NAME, NAME, st.none() | NAME, st.none() | st.floats(0, 1e6))
LINKS = st.builds(
    Link,
    st.sampled_from(["mlx5_0", "mlx5_1"]),
    st.none() | NAME,
    st.lists(NEIGHBORS, max_size=40).map(tuple),
    NAME,
)


@pytest.mark.slow
@given(st.lists(LINKS, max_size=3))
def test_hostile_neighbors_change_names_only(links: list[Link]) -> None:
    """Whatever they call themselves, it parses, and there are at most 32 a port and no series of
    another kind.
    """
    devices = [eth("mlx5_0", 1), eth("mlx5_1", 2)]
    found = series(text(fed(observation(devices, lldp=Seen(tuple(links))))))
    infos = [dict(labels) for name, labels in found if name == "bwagent_neighbor_info"]
    assert len(infos) <= MAX_NEIGHBORS * len(links)
    assert all(len(value) <= MAX_LABEL_LENGTH for info in infos for value in info.values())
    words = {dict(labels)["reason"] for name, labels in found if name == "bwagent_neighbor_missing"}
    assert words <= {*NeighborReason, OTHER}
    assert {name for name, _ in found} <= NAMES
    assert len(found) - len(infos) <= 100


def test_the_accelerator() -> None:
    """The domain, or one reason of all; how many GPUs are in which state, and how many are
    unwell.
    """
    uuid = "12345678-0000-0000-0000-000000000001"
    fine = Gpu(0, state="completed", status="success", cluster_uuid=uuid, clique_id=7)
    sick = fine._replace(number=1, health_mask=1, health=(("degraded_bandwidth", "true"),))
    metrics = fed(observation([], nvml=Seen((fine, sick))))
    assert of(metrics, "bwagent_accelerator_info") == {(f"{uuid}.7",): 1}
    assert not any(of(metrics, "bwagent_accelerator_missing").values())
    assert of(metrics, "bwagent_gpus")[("completed",)] == 2
    assert of(metrics, "bwagent_gpus_unhealthy") == {(): 1}
    waiting = fed(observation([], nvml=Seen((fine._replace(state="in-progress"),))))
    reasons = of(waiting, "bwagent_accelerator_missing")
    assert {reason for (reason,), value in reasons.items() if value} == {"in-progress"}
    assert of(waiting, "bwagent_accelerator_info") == {}


@pytest.mark.parametrize(
    ("missing", "success"),
    [
        (("no-umad", "no-umad"), 0),
        (("no-umad", "link-down"), 0),
        (("not-permitted", "unavailable"), 0),
        (("no-umad", None), 1),
        (("no-umad", "no-answer"), 1),
        (("link-down", "link-down"), 1),
        ((), 1),
    ],
)
@pytest.mark.parametrize("source", ["lldp", "ib"])
def test_a_source_that_reaches_no_port(
    source: str, missing: tuple[str | None, ...], success: int
) -> None:
    """A node that lacks a library, device file or privilege has a failed source."""
    links = tuple(Link(f"p{index}", None, missing=word) for index, word in enumerate(missing))
    sources: dict[str, Any] = {source: Seen(links)}
    seen = observation([])._replace(**sources)
    assert of(fed(seen), "bwagent_source_success")[(source,)] == success


def test_sources() -> None:
    """A source that failed keeps the time of its last success; one that was not asked changes
    nothing.
    """
    metrics = fed(observation([]), rdma=0.01, lldp=0.002)
    broken = observation(
        [], time=1060.0, rdma=Failed("gone"), problems=(Problem("rdma", "x", None, "gone"),)
    )
    metrics.observed(cycle(broken._replace(off=frozenset({"nvml"}))), {"rdma": 1.5})
    assert of(metrics, "bwagent_source_success") == {("rdma",): 0, ("lldp",): 1, ("ib",): 1}
    assert of(metrics, "bwagent_source_duration_seconds") == {("rdma",): 1.5, ("lldp",): 0.002}
    last = of(metrics, "bwagent_source_last_success_timestamp_seconds")
    assert last == {("rdma",): 1000, ("lldp",): 1000}
    assert of(metrics, "bwagent_source_problems")[("rdma",)] == 1
    assert of(metrics, "bwagent_speed_bytes_per_second") == {}
    assert of(metrics, "bwagent_accelerator_missing") == {}
    assert of(metrics, "bwagent_observations_total") == {(): 2}


def test_what_the_loop_counts() -> None:
    """Labels, requests and frames; a status that is none is no series of its own."""
    problem = Problem("labels", "x", None, "too long")
    rendered = Rendered({"a": "1", "b": "2"}, {"a": HoldReason.LENT}, (problem,))
    metrics = Metrics()
    metrics.observed(cycle(observation([]), rendered=rendered), {})
    metrics.update(labels_expired=3)
    for code in (200, 200, 409, None, 0, 99999):
        metrics.request(code)
    assert (of(metrics, "bwagent_ready"), of(metrics, "bwagent_keys_foreign")) == ({(): 0}, {})
    metrics.update(ready=True, applied_at=1234.5, frames_dropped={"own": 3})
    metrics.update(keys_refused=1, keys_left_alone=2, keys_foreign=3)
    assert of(metrics, "bwagent_api_requests_total") == {("200",): 2, ("409",): 1, ("none",): 3}
    assert of(metrics, "bwagent_lldp_frames_dropped_total") == {("own",): 3}
    for name, value in {
        "ready": 1,
        "labels": 2,
        "labels_held": 1,
        "labels_expired_total": 3,
        "keys_too_long": 1,
        "keys_refused": 1,
        "keys_left_alone": 2,
        "keys_foreign": 3,
        "last_applied_timestamp_seconds": 1234.5,
    }.items():
        assert of(metrics, f"bwagent_{name}") == {(): value}


def test_before_the_first_observation() -> None:
    found = {name for name, _ in series(text(Metrics()))}
    assert found.isdisjoint(row.name for row in OBSERVED)
    assert {f"bwagent_{one}_total" for one in ("api_requests", "observations")} <= found
    assert "bwagent_build_info" in found


def test_the_process() -> None:
    """This very process: it has used some CPU and memory, and has files open."""
    found = {name: value for (name, _), value in series(text(Metrics())).items()}
    found = {name: value for name, value in found.items() if name.startswith("process_")}
    assert {name.removesuffix("_total") for name in found} == PROCESS
    assert found["process_resident_memory_bytes"] > 1e6
    assert all(value > 0 for value in found.values())


# What was not asked: a source that --source leaves out claims nothing.

NODE, NVML = nic(0) | gpu(), ("bwagent_accelerator", "bwagent_gpus")


def about(world: World, *names: str) -> set[str]:
    return {name for name, _ in series(text(world.metrics)) if name.startswith(names)}


@pytest.mark.parametrize("asked", [("rdma",), ("rdma", "lldp"), ("rdma", "ib"), ("nvml",), SOURCES])
def test_a_source_that_is_off_has_no_series(asked: tuple[str, ...]) -> None:
    """Neither success nor duration nor problems, nor a reason, a GPU or a frame."""
    world = World(NODE, sources=asked).run(90)
    labels = [dict(labels) for _, labels in series(text(world.metrics))]
    assert {one["source"] for one in labels if "source" in one} == {*asked, "host", "labels"}
    assert bool(about(world, *NVML)) == ("nvml" in asked)
    assert bool(about(world, "bwagent_neighbor")) == ("lldp" in asked)
    assert bool(about(world, "bwagent_speed")) == ("rdma" in asked)
    assert bool(about(world, "bwagent_lldp_frames")) == ("lldp" in asked)


def test_gpus_that_could_not_be_queried() -> None:
    """Their number is unknown, not 0; the reason is there."""
    assert about(World(NODE).run(90), *NVML) == {"bwagent_accelerator_missing"}


# What holds the table to the rest.


def test_names_follow_the_conventions() -> None:
    """Counters end with _total and nothing else does; no name stands there twice."""
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.name.endswith("_total") == (row.kind == COUNTER) for row in ROWS)
    assert all(row.text.endswith(".") for row in ROWS)


def test_the_document_has_the_table(repository: Path, update_golden: bool) -> None:
    """docs/metrics.md names every metric, as the code does, and where the reasons are."""
    rows = [(row.name, row.kind, row.labels, row.text) for row in ROWS]
    rows += [
        (one.name + "_total" * (one.type == COUNTER), one.type, (), one.documentation)
        for one in OWN
    ]
    truth = "".join(
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |\n"
        for name, kind, labels, text in rows
    )
    begin = "| metric | type | labels | meaning |\n|---|---|---|---|\n"
    path = repository / "docs/metrics.md"
    assert between(path, begin, "\n`reason` of", truth, update=update_golden) == truth
    assert f"(operations.md#no-neighbor-on-a-port), or `{OTHER}`." in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES, ids=lambda path: path.name)
def test_every_machine_has_metrics(machine: Path) -> None:
    """A captured machine's metrics parse, and no reason is one that the list does not know."""
    found = series(text(fed(observed(machine)[1], rdma=0.01)))
    assert found["bwagent_observations_total", frozenset()] == 1
    missing = [labels for name, labels in found if name == "bwagent_neighbor_missing"]
    assert not [labels for labels in missing if ("reason", "other") in labels]


def test_every_metric_is_exposed() -> None:
    """Where each has a sample, there is one of every name and of no other."""
    assert {name for name, _ in series(text(complete()))} == NAMES
