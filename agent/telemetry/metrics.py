"""The metrics: values that the loop counts, the table of all metrics, and their exposition.

docs/metrics.md shows the table, and a test holds the two equal. The metrics of the process come
from prometheus_client.

A sample is the label values in the order of the row and a number; None is unknown and not exposed.
An enumeration has one sample per word: 1 for the word that applies, 0 for the others. The reason
for a missing neighbor is one sample instead, since a zero for each of 15 reasons on 16 ports of
every node would fill a fleet's storage. Times are timestamps, not ages: an age is outdated as soon
as it is rendered.

Invariants:
- A Snapshot never changes. `Metrics.snapshot` is replaced by one assignment, so the server's
  threads read it without a lock and see no half of an event.
- The number of series does not depend on the fabric: all series are computed from the last
  observation, and a port has at most MAX_NEIGHBORS of them. Every other label value names a part of
  this node or comes from a fixed list.
- No label value is longer than MAX_LABEL_LENGTH, and none has an unprintable character.
- No series is exposed twice. Of two samples with equal labels the first counts.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

import agent
from agent.helper.process import unended
from agent.model import Failed, IbNeighbor, Link, Observation, Seen
from agent.nvml.decode import STATES
from agent.nvml.domain import health_faults
from agent.output.backend import ABSENT, AbsentPort, absent_ports, is_suspect, speed_gbps
from agent.reasons import AcceleratorReason, NeighborReason
from agent.sources import NAMES
from agent.sources.left_out import left_out
from agent.text import visible

if TYPE_CHECKING:  # agent.daemon comes later in the flow of data
    from agent.daemon.observer import Cycle

T = TypeVar("T")
Family = CounterMetricFamily | GaugeMetricFamily
# Label values in the row's order, and the value; None is unknown and has no series.
Sample = tuple[tuple[str | None, ...], float | None]

GAUGE, COUNTER = "gauge", "counter"
OTHER = "other"  # label value for a word outside a metric's fixed list

MAX_PORTS = 1024  # with a remembered state
MAX_NEIGHBORS = 32  # series of one port
MAX_LABEL_LENGTH = 128  # characters
END = b"# EOF\n"  # of a text in the format OpenMetrics
BYTES_PER_GIGABIT = 1e9 / 8  # Prometheus' base unit is the byte
# IBTA vol. 1, 14.2.5.6, PortInfo.PortState, by the names of drivers/infiniband/core/sysfs.c.
PORT_STATES = ("DOWN", "INIT", "ARMED", "ACTIVE")
# IBTA vol. 1, 14.2.5.6, PortInfo.PortPhysicalState, by the names of ib_port_phys_state_to_str().
PHYSICAL_STATES = (
    *("Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp"),
    *("LinkErrorRecovery", "Phy Test"),
)
PROBLEM_SOURCES = (*NAMES, "tiers", "host", "labels")
# Reasons within this node, a privilege or a library for instance; no far end was asked.
UNABLE = {NeighborReason.NOT_PERMITTED, NeighborReason.NO_UMAD, NeighborReason.UNAVAILABLE}
# Metrics of the process; prometheus_client appends _total to the name of a counter.
PROCESS = frozenset(
    {
        "process_cpu_seconds",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
    }
)

NONE: Mapping[str, Any] = MappingProxyType({})


class Metric(NamedTuple, Generic[T]):
    """A metric, and the function that computes its samples from a T."""

    name: str  # in the text format 0.0.4: a counter ends with _total
    kind: str  # GAUGE or COUNTER
    text: str  # the HELP line
    labels: tuple[str, ...]
    samples: Callable[[T], Iterable[Sample]]


def single(value: float | None) -> Iterable[Sample]:
    """Return the sample of a metric without labels."""
    return [((), value)]


def by_key(values: Iterable[tuple[str, float]]) -> Iterable[Sample]:
    """Return the samples of a metric with one label."""
    return [((key,), value) for key, value in values]


class Snapshot(NamedTuple):
    """The values behind every metric; times are seconds since the epoch, durations seconds."""

    cycle: Cycle | None = None  # the last cycle
    observations: int = 0
    durations: Mapping[str, float] = NONE  # by source
    succeeded_at: Mapping[str, float] = NONE  # by source
    flaps: Mapping[str, int] = NONE  # by interface
    roles_changed: int = 0
    flapping: tuple[str, ...] = ()  # interfaces (agent/daemon/flapping.py)
    last_frame_at: Mapping[str, float] = NONE  # by interface
    labels_expired: int = 0
    keys_refused: int = 0
    keys_left_alone: int = 0
    keys_contended: int = 0
    keys_foreign: int | None = None  # None before the Node was read
    # By HTTP status. A counter that begins at 0 shows its first increase.
    requests: Mapping[str, int] = MappingProxyType({"200": 0})
    ready: bool = False
    policy_in_force: bool | None = None  # None: not known
    applied_at: float | None = None
    frames_dropped: Mapping[str, int] = NONE  # by reason
    events: Mapping[str, int] = NONE  # of --events, by result
    # Of an expected half.
    findings: tuple[tuple[str, str], ...] = ()  # reported: (code, first interface)
    plan_rows: int | None = None
    verified_at: float | None = None
    plan_unread: bool | None = None  # a file of --plan; None: without --plan
    plan_contradiction: bool | None = None  # in the expected half; None without that half

    @property
    def plan_problem(self) -> bool | None:
        """True if the plan as it is now is not in use; None without a plan."""
        known = {self.plan_unread, self.plan_contradiction} - {None}
        return any(known) if known else None


class Metrics:
    """The loop's side of the metrics: counts events into `snapshot`."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self._active: dict[str, bool] = {}  # by interface
        self._interfaces: dict[str, str] = {}  # by netdev

    def observed(self, cycle: Cycle, durations: Mapping[str, float]) -> None:
        """Take in an observation; `durations` has the seconds of each source that was read."""
        observation = cycle.observation
        now, links = self.snapshot, observation.links
        self._interfaces = {link.netdev: link.interface for link in links if link.netdev}
        asked = filter(observation.is_asked, NAMES)
        known = {source: durations[source] for source in asked if source in durations}
        succeeded = [source for source in known if success(observation, source)]
        # The last frame of each port that has a neighbor.
        frames = {
            link.interface: max(
                observation.time - (neighbor.age or 0) for neighbor in link.neighbors
            )
            for link in links
            if link.neighbors
        }
        # A change from ACTIVE to another known state is one flap of the port.
        present = {name: is_up for name, is_up in _active(cycle).items() if is_up is not None}
        fell = [name for name, is_up in present.items() if self._active.get(name) and not is_up]
        flaps = {**now.flaps, **{name: now.flaps.get(name, 0) + 1 for name in fell}}
        self._active |= present
        if len(self._active) > MAX_PORTS:
            self._active = present
            flaps = {name: flaps[name] for name in present if name in flaps}
        self.update(
            cycle=cycle,
            observations=now.observations + 1,
            flaps=flaps,
            last_frame_at=frames,
            durations={**now.durations, **known},
            succeeded_at={**now.succeeded_at, **dict.fromkeys(succeeded, observation.time)},
        )

    def frames_repeated(self, netdevs: Iterable[str], at: float) -> None:
        """Record frames from known neighbors at `at`; such a frame causes no observation."""
        times = self.snapshot.last_frame_at
        known = times.keys() & {self._interfaces.get(netdev) for netdev in netdevs}
        if known:
            self.update(last_frame_at={**times, **dict.fromkeys(known, at)})

    def request(self, code: int | None) -> None:
        """Count a request to the API server by its HTTP status; None without an answer."""
        status = str(code) if code and 100 <= code <= 599 else "none"
        requests = self.snapshot.requests
        self.update(requests={**requests, status: requests.get(status, 0) + 1})

    def update(self, **values: Any) -> None:
        """Replace values of the snapshot, by the names of its fields."""
        self.snapshot = self.snapshot._replace(**values)

    def events(self, **results: int) -> None:
        """Count Events about the Node by result; a counter begins at 0."""
        before = self.snapshot.events
        counted = {name: before.get(name, 0) + count for name, count in results.items()}
        self.update(events={**before, **counted})


def _active(cycle: Cycle) -> dict[str, bool | None]:
    """Return True or False for each backend port, by interface; None in an unknown state."""
    states = {role.interface: role.port.state for role in cycle.observation.backend}
    active = {name: state == "ACTIVE" if state else None for name, state in states.items()}
    return active | {port.interface: False for port in _absent(cycle)}


def success(seen: Observation, source: str) -> bool | None:
    """Return False for a source that failed; None for a source that is switched off.

    A neighbor source has also failed if each port with a link lacks what this node gives it.
    """
    if not seen.is_asked(source):
        return None
    outcome = getattr(seen, source)
    links = outcome.value if isinstance(outcome, Seen) else ()
    missing = {link.missing for link in links if isinstance(link, Link)}
    missing.discard(NeighborReason.LINK_DOWN)
    reaches_no_port = bool(missing) and missing <= UNABLE
    return not isinstance(outcome, Failed) and not reaches_no_port


def ports(cycle: Cycle) -> Iterable[Sample]:
    """Count the ports by role."""
    roles = Counter(role.backend for role in cycle.observation.ports)
    return [(("backend",), roles[True]), (("ignored",), roles[False])]


def _absent(cycle: Cycle) -> list[AbsentPort]:
    return absent_ports(cycle.observation, cycle.known)


def port_info(cycle: Cycle) -> Iterable[Sample]:
    """Return the identity of each backend port; each leg of a bond has its own netdev."""
    for role in cycle.observation.backend:
        device, port = role.device, role.port
        netdev = role.netdev
        yield (
            (
                *(role.interface, device.name, str(port.number), device.pci),
                *(netdev.name if netdev else None, port.link_layer),
                *(device.hca_type, device.board_id, device.fw_ver),
            ),
            1,
        )
    for absent in _absent(cycle):
        yield (absent.interface, None, None, absent.pci, *[None] * 5), 1


def port_state(cycle: Cycle) -> Iterable[Sample]:
    """Return the logical state of each port, `ports/N/state`; an unknown state is "other".

    A labeled port without an RDMA device is "absent".
    """
    states = {role.interface: role.port.state for role in cycle.observation.backend}
    states |= {port.interface: ABSENT for port in _absent(cycle)}
    return _enumeration(states.items(), (*PORT_STATES, ABSENT))


def link_errors(cycle: Cycle) -> Iterable[Sample]:
    """Return the error counters of each end of a link that was read."""
    for link in cycle.observation.read_links:
        for name, end in (("near", link.near), ("far", link.far_end)):
            if not isinstance(end, str):
                for counter, value in end.counters._asdict().items():
                    yield (link.interface, name, counter), value


def port_physical_state(cycle: Cycle) -> Iterable[Sample]:
    """Return the physical state of each port, `ports/N/phys_state`; an unknown state is "other"."""
    backend = cycle.observation.backend
    states = [(role.interface, role.port.phys_state) for role in backend]
    return _enumeration(states, PHYSICAL_STATES)


def _enumeration(
    words: Iterable[tuple[str, str | None]], known: tuple[str, ...]
) -> Iterable[Sample]:
    """Return a sample of each word and of OTHER for each interface: 1 for its word, else 0."""
    for interface, word in words:
        shown = word if word in known else OTHER
        yield from (((interface, value), value == shown) for value in (*known, OTHER))


def port_counted(cycle: Cycle) -> Iterable[Sample]:
    """Return the part of speed.current of each port: 0 unless ACTIVE, None in an unknown state."""
    yield from (
        ((role.interface,), _bytes(role.counted_gbps)) for role in cycle.observation.backend
    )
    yield from (((port.interface,), _bytes(port.counted_gbps)) for port in _absent(cycle))


def neighbor_info(cycle: Cycle) -> Iterable[Sample]:
    """Return the names of each neighbor; labels are rendered from the first, the selected one."""
    for link in cycle.observation.links:
        for rank, neighbor in enumerate(link.neighbors[:MAX_NEIGHBORS]):
            facts = neighbor.facts
            chassis = facts.node_guid if isinstance(facts, IbNeighbor) else facts.chassis_id
            names = (neighbor.device, neighbor.port_id, neighbor.port_name)
            yield (link.interface, neighbor.via, *names, chassis, "false" if rank else "true"), 1


def neighbor_missing(cycle: Cycle) -> Iterable[Sample]:
    """Return the NeighborReason of each port without neighbor."""
    known = set(NeighborReason)
    for link in cycle.observation.links:
        if link.missing:
            yield (link.interface, link.missing if link.missing in known else OTHER), 1


def source_problems(cycle: Cycle) -> Iterable[Sample]:
    """Count the failed reads and malformed values of each source."""
    seen = cycle.observation
    problems = Counter(problem.source for problem in seen.problems)
    return [((source,), problems[source]) for source in PROBLEM_SOURCES if seen.is_asked(source)]


def tier_questions(cycle: Cycle) -> Iterable[Sample]:
    """Count the questions to administrators about the switches above; none without --tiers."""
    if (questions := cycle.sa_questions) is not None:
        outcomes = {"answered": 0} | {word: n for word, n in questions.items() if word != "smps"}
        yield from by_key(outcomes.items())


def tier_answer(cycle: Cycle) -> Iterable[Sample]:
    """Return the time of the last answer about the switches above; unknown before the first."""
    fabric = cycle.known.fabric
    return single(fabric.heard or None if fabric else None)


def accelerator_info(cycle: Cycle) -> Iterable[Sample]:
    """Return the accelerator label's value; no sample without a value."""
    value = cycle.observation.accelerator.value
    return [((value,), 1)] if value else []


def accelerator_missing(cycle: Cycle) -> Iterable[Sample]:
    """Return one sample per AcceleratorReason."""
    if not cycle.observation.is_asked("nvml"):
        return []
    reason = cycle.observation.accelerator.reason
    return [((word,), word == reason) for word in AcceleratorReason]


def gpus(cycle: Cycle) -> Iterable[Sample]:
    """Count the GPUs in each fabric state (NVML_GPU_FABRIC_STATE_*), unless they are unknown."""
    if not _has_gpus(cycle):
        return []
    states = Counter(gpu.state if gpu.state in STATES else OTHER for gpu in cycle.observation.gpus)
    return [((state,), states[state]) for state in (*STATES, OTHER)]


def gpus_unhealthy(cycle: Cycle) -> Iterable[Sample]:
    """Count the GPUs with a fault in their fabric health; health changes no label."""
    faulty = sum(bool(health_faults(gpu)) for gpu in cycle.observation.gpus)
    return single(faulty if _has_gpus(cycle) else None)


def _has_gpus(cycle: Cycle) -> bool:
    """Return True if the GPUs were asked and have answered."""
    seen = cycle.observation
    return seen.is_asked("nvml") and not isinstance(seen.nvml, Failed)


def _bytes(gigabits: float | None) -> float | None:
    return None if gigabits is None else gigabits * BYTES_PER_GIGABIT


PORT = ("interface",)
PORT_INFO = (
    *("interface", "device", "port", "pci", "netdev", "link_layer"),
    *("hca_type", "board_id", "fw_ver"),
)
NEIGHBOR = ("interface", "via", "device", "port_id", "port_name", "chassis", "selected")
SOURCE = ("source",)
PYTHON = sys.version.partition(" ")[0]

# fmt: off
# Computed from the last observation.
OBSERVED: tuple[Metric[Cycle], ...] = (
    Metric("bwagent_ports", GAUGE, "Ports of RDMA devices by role.", ("role",), ports),
    Metric("bwagent_backend_ports_lost", GAUGE,
           "Labeled ports whose HCA is gone from the bus.", (),
           lambda cycle: single(len(cycle.known.lost) if cycle.known.is_seeded else None)),
    Metric("bwagent_port_info", GAUGE, "A backend port, always 1.", PORT_INFO, port_info),
    Metric("bwagent_port_state", GAUGE,
           "Logical state of the port: 1 for the state that applies.",
           ("interface", "state"), port_state),
    Metric("bwagent_port_physical_state", GAUGE,
           "Physical state of the port: 1 for the state that applies.",
           ("interface", "state"), port_physical_state),
    Metric("bwagent_port_rate_bytes_per_second", GAUGE,
           "Rate of the RDMA port, also while it is down.", PORT,
           lambda cycle: [((role.interface,), _bytes(role.port.rate_gbps))
                          for role in cycle.observation.backend]),
    Metric("bwagent_port_counted_bytes_per_second", GAUGE,
           "Part of the port in speed.current.", PORT, port_counted),
    Metric("bwagent_port_link_downed_total", COUNTER,
           "Lost links, counted by the HCA.", PORT,
           lambda cycle: [((role.interface,), role.port.link_downed)
                          for role in cycle.observation.backend]),
    Metric("bwagent_link_errors_total", COUNTER,
           "Errors that an InfiniBand link counts at an end, as they were read last.",
           ("interface", "end", "counter"), link_errors),
    Metric("bwagent_link_unstable", GAUGE,
           "An InfiniBand link that has errors, always 1, and its bad end.", ("interface", "end"),
           lambda cycle: [((link.interface, link.verdict.end), 1)
                          for link in cycle.observation.read_links
                          if link.verdict and link.verdict.is_unstable]),
    Metric("bwagent_nic_unhealthy", GAUGE,
           "A health reporter in error of a backend NIC, always 1.", ("pci", "reporter"),
           lambda cycle: [((nic.pci, reporter.name), 1)
                          for nic in cycle.observation.nic_health for reporter in nic.in_error]),
    Metric("bwagent_speed_bytes_per_second", GAUGE,
           "Sum of the counted rates, speed.current.", (),
           lambda cycle: single(_bytes(speed_gbps(cycle.observation, cycle.known)
                                       if cycle.observation.is_asked("rdma") else None))),
    Metric("bwagent_ports_left_out", GAUGE,
           "ACTIVE ports at the rate of the backend that a rule does not count.", (),
           lambda cycle: single(len(left_out(cycle.observation)))),
    Metric("bwagent_suspect_rates", GAUGE,
           "ACTIVE ports with a rate too low for their HCA.", (),
           lambda cycle: single(sum(map(is_suspect, cycle.observation.ports)))),
    Metric("bwagent_neighbors", GAUGE,
           "Neighbors of the port; more than one is ambiguous.", PORT,
           lambda cycle: [((link.interface,), len(link.neighbors))
                          for link in cycle.observation.links]),
    Metric("bwagent_neighbor_info", GAUGE,
           "A neighbor of the port, always 1.", NEIGHBOR, neighbor_info),
    Metric("bwagent_neighbor_missing", GAUGE,
           "Reason for a missing neighbor, always 1.",
           ("interface", "reason"), neighbor_missing),
    Metric("bwagent_tier_questions_total", COUNTER,
           "Questions to subnet administrators about the switches above the leaves.",
           ("outcome",), tier_questions),
    Metric("bwagent_tier_smps_total", COUNTER,
           "SMPs about them, where a subnet administrator refuses or does not answer.",
           (), lambda cycle: single(cycle.sa_questions.get("smps", 0)
                                    if cycle.sa_questions is not None else None)),
    Metric("bwagent_tier_answer_timestamp_seconds", GAUGE,
           "Time of their last answer, about all switches above or the daily one about the leaves.",
           (), tier_answer),
    Metric("bwagent_accelerator_info", GAUGE,
           "The NVLink domain, always 1.", ("domain",), accelerator_info),
    Metric("bwagent_accelerator_missing", GAUGE,
           "Reason for a missing NVLink domain: 1 for the reason that applies.",
           ("reason",), accelerator_missing),
    Metric("bwagent_gpus", GAUGE,
           "GPUs by the state of their fabric registration.", ("fabric_state",), gpus),
    Metric("bwagent_gpus_unhealthy", GAUGE,
           "GPUs with a fault in their fabric health.", (), gpus_unhealthy),
    Metric("bwagent_source_success", GAUGE,
           "1 if the source could be read in the last observation; 0 also if no port with a link "
           "could be asked for want of a privilege, library or device file.",
           SOURCE, lambda cycle: [((source,), success(cycle.observation, source))
                                  for source in NAMES]),
    Metric("bwagent_source_problems", GAUGE,
           "Failed reads and malformed values in the last observation.",
           SOURCE, source_problems),
    Metric("bwagent_labels", GAUGE,
           "Labels that the Node should have.", (),
           lambda cycle: single(len(cycle.rendered.labels))),
    Metric("bwagent_labels_held", GAUGE,
           "Labels whose source fails at present.", (),
           lambda cycle: single(len(cycle.rendered.kept))),
    Metric("bwagent_keys_too_long", GAUGE,
           "Label keys over the length limit of Kubernetes.", (),
           lambda cycle: single(len(cycle.rendered.problems))),
)
# Counted by the loop since its start.
COUNTED: tuple[Metric[Snapshot], ...] = (
    Metric("bwagent_port_flaps_total", COUNTER,
           "Observed changes of the port from ACTIVE to another state.",
           PORT,
           lambda now: [((name,), now.flaps.get(name, 0))
                        for name in (_active(now.cycle) if now.cycle else ())]),
    Metric("bwagent_port_flapping", GAUGE,
           "1 if the port changed five times in ten minutes, until it was quiet for ten.",
           PORT,
           lambda now: [((name,), name in now.flapping)
                        for name in (_active(now.cycle) if now.cycle else ())]),
    Metric("bwagent_neighbor_last_seen_timestamp_seconds", GAUGE,
           "Time of the last LLDP frame from the port's neighbor; InfiniBand: of an observation.",
           PORT, lambda now: by_key(now.last_frame_at.items())),
    Metric("bwagent_source_duration_seconds", GAUGE,
           "Duration of the source's last read.",
           SOURCE, lambda now: by_key(now.durations.items())),
    Metric("bwagent_source_last_success_timestamp_seconds", GAUGE,
           "Time of the source's last successful read.",
           SOURCE, lambda now: by_key(now.succeeded_at.items())),
    Metric("bwagent_observations_total", COUNTER,
           "Observations of the node.", (), lambda now: single(now.observations)),
    Metric("bwagent_roles_changed_total", COUNTER,
           "Ports whose role was contradicted twice, a minute apart, and is another now.",
           (), lambda now: single(now.roles_changed)),
    Metric("bwagent_labels_expired_total", COUNTER,
           "Labels removed at the end of a hold.", (), lambda now: single(now.labels_expired)),
    Metric("bwagent_keys_refused", GAUGE,
           "Label keys that the API server refuses.", (), lambda now: single(now.keys_refused)),
    Metric("bwagent_keys_left_alone", GAUGE,
           "Label keys that are left to another manager of the Node.",
           (), lambda now: single(now.keys_left_alone)),
    Metric("bwagent_keys_contended", GAUGE,
           "Label keys that a second agent on the Node writes, too.",
           (), lambda now: single(now.keys_contended)),
    Metric("bwagent_keys_foreign", GAUGE,
           "Keys of the label table that others hold and the agent does not publish.",
           (), lambda now: single(now.keys_foreign)),
    Metric("bwagent_api_requests_total", COUNTER,
           "Requests to the API server by HTTP status.",
           ("code",), lambda now: by_key(now.requests.items())),
    Metric("bwagent_events_total", COUNTER,
           "Events about the Node: written, failed (one request) and dropped unwritten.",
           ("result",), lambda now: by_key(now.events.items())),
    Metric("bwagent_ready", GAUGE,
           "1 if the Node says what was observed, as /readyz.", (), lambda now: single(now.ready)),
    Metric("bwagent_policy_in_force", GAUGE,
           "1 if the admission policy refused a foreign label in the last check, 0 if the API "
           "server would accept it.",
           (), lambda now: single(now.policy_in_force)),
    Metric("bwagent_last_applied_timestamp_seconds", GAUGE,
           "Time at which the Node last had every label.", (), lambda now: single(now.applied_at)),
    Metric("bwagent_lldp_frames_dropped_total", COUNTER,
           "Frames dropped by the LLDP receiver.",
           ("reason",), lambda now: by_key(now.frames_dropped.items())),
    Metric("bwagent_findings", GAUGE,
           "A reported finding of the verdict by its first interface, always 1.",
           ("code", "interface"), lambda now: [(finding, 1) for finding in now.findings]),
    Metric("bwagent_verified_timestamp_seconds", GAUGE,
           "Time at which the cables were last compared with the plan.",
           (), lambda now: single(now.verified_at)),
    Metric("bwagent_plan_rows", GAUGE,
           "Cables of the node in its plan.", (), lambda now: single(now.plan_rows)),
    Metric("bwagent_plan_problem", GAUGE,
           "1 if the plan, as it is now, is not in use: a file of --plan cannot be read, or rows "
           "or expected labels contradict each other.",
           (), lambda now: single(now.plan_problem)),
    Metric("bwagent_helper_processes_stuck", GAUGE,
           "Processes of helpers that were killed and still live, blocked in a driver.",
           (), lambda _: single(unended())),
    Metric("bwagent_build_info", GAUGE,
           "This agent, always 1.",
           ("version", "python"), lambda _: [((agent.__version__, PYTHON), 1)]),
)
# fmt: on


class Exposition:
    """The text of /metrics.

    Of prometheus_client's default collectors it has four metrics of the process, which are read
    from /proc/self at the scrape.

    The text of the last observation's rows is kept: most scrapes of an idle node find the
    observation of the scrape before, and its rows are most of the text.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._all, self._counted = CollectorRegistry(), CollectorRegistry()
        counted = RowCollector(COUNTED, lambda: metrics.snapshot), OwnProcess()
        for collector in (RowCollector(OBSERVED, lambda: metrics.snapshot.cycle), *counted):
            self._all.register(collector)
        for collector in counted:
            self._counted.register(collector)
        self._kept: tuple[str, Cycle | None, bytes] = "", None, b""  # with its content type

    def __call__(self, accept: str = "", names: Sequence[str] = ()) -> tuple[str, bytes]:
        """Return the content type that this Accept header asks for, and the text.

        `names` restricts it to some samples, as `/metrics?name[]=` does. Not for two threads at a
        time.
        """
        encode, content_type = choose_encoder(accept)
        if names:
            return content_type, encode(self._all.restricted_registry(names))
        cycle = self._metrics.snapshot.cycle
        kept_type, kept_cycle, observed = self._kept
        if kept_cycle is not cycle or kept_type != content_type:
            observed = encode(RowCollector(OBSERVED, lambda: cycle)).removesuffix(END)
            self._kept = content_type, cycle, observed
        return content_type, observed + encode(self._counted)


class RowCollector(Generic[T]):
    """A collector of rows of the table, over what `of` returns; without that it has no samples."""

    def __init__(self, rows: Sequence[Metric[T]], of: Callable[[], T | None]) -> None:
        self._rows, self._of = rows, of

    def collect(self) -> Iterator[Family]:
        """Return the families that have samples."""
        of = self._of()
        families = (family(row, of) for row in self._rows) if of is not None else ()
        yield from (family for family in families if family.samples)

    def describe(self) -> Iterable[Family]:
        """Return the names of all families, for `/metrics?name[]=`."""
        return map(_empty, self._rows)


class OwnProcess:
    """CPU time, memory, descriptors and start time of this process."""

    def __init__(self) -> None:
        self._all = ProcessCollector(registry=None)

    def collect(self) -> Iterable[Any]:
        """Return the families in PROCESS; fewer if /proc/self cannot be read."""
        return [family for family in self._all.collect() if family.name in PROCESS]

    describe = collect


def family(row: Metric[T], of: T) -> Family:
    """Return a metric with its samples, with the label values as they are shown."""
    series: dict[tuple[str, ...], float] = {}
    for labels, value in row.samples(of):
        if value is not None:
            shown = tuple(visible(label or "", MAX_LABEL_LENGTH) for label in labels)
            series.setdefault(shown, value)
    family = _empty(row)
    for shown, value in series.items():
        family.add_metric(shown, value)
    return family


def _empty(row: Metric[T]) -> Family:
    kind = CounterMetricFamily if row.kind == COUNTER else GaugeMetricFamily
    return kind(row.name, row.text, labels=row.labels)
