"""What Prometheus is told: the table of metrics, and what the loop has said to fill it.

The law of this module: nobody outside decides how many series there are. Every series is made anew from the last
observation, so what a neighbour called itself before is gone; a port has at most 32 neighbours; every other label value
is the name of something in this node, or a word out of a list that stands in the code.

Points in time are told as timestamps, not as ages: an age is wrong as soon as it is written.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import agent
from agent.telemetry import samples as of
from agent.telemetry.exposition import family

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sized

    from agent.model import Observation
    from agent.telemetry.exposition import Sample

T = TypeVar("T")

MAX_PORTS = 1024  # whose flaps are remembered


class Process(Protocol):
    """As much of psutil.Process as is asked."""

    def cpu_times(self) -> tuple[float, ...]: ...  # user, system, ... in seconds
    def memory_info(self) -> tuple[int, ...]: ...  # resident, ... in bytes
    def num_fds(self) -> int: ...
    def create_time(self) -> float: ...  # seconds since the epoch


class Metric(NamedTuple, Generic[T]):
    """One row of the table: its name, "gauge" or "counter", what it says, the names of its labels, its samples."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]
    samples: Callable[[T], Iterable[Sample]]

    def exposed(self, of_what: T) -> str:
        """Its lines."""
        return family(self.name, self.kind, self.text, self.labels, self.samples(of_what))


class Metrics:
    """Everything that the loop has told so far. It belongs to the loop; others may have its text."""

    def __init__(self) -> None:
        self.observation: Observation | None = None
        self.observations = 0
        self.durations: dict[str, float] = {}  # by source
        self.succeeded: dict[str, float] = {}  # by source
        self.active: dict[str, bool] = {}  # by interface
        self.flaps: Counter[str] = Counter()  # by interface
        self.last_frame_at: dict[str, float] = {}  # by interface
        self.labels = self.held = self.expired = self.keys_too_long = self.keys_refused = 0
        self.requests = Counter(
            {"200": 0}
        )  # by code; a counter that starts at 0 shows its first increase
        self.applied_at: float | None = None
        self.dropped: dict[str, int] = {}  # by why
        self._interfaces: dict[str, str] = {}  # by netdev
        self._seen: str | None = None  # what the observation has become, while there is no other

    def observed(self, observation: Observation, durations: Mapping[str, float]) -> None:
        """Take in an observation; `durations` are the seconds of each source that was asked for it."""
        self.observation, self._seen = observation, None
        self.observations += 1
        for source in durations.keys() & set(of.SOURCES):
            self.durations[source] = durations[source]
            if of.success(observation, source):
                self.succeeded[source] = observation.time
        links = of.links(observation)
        self._interfaces = {link.netdev: link.interface for link in links if link.netdev}
        self.last_frame_at = {
            link.interface: at for link in links if (at := of.last_frame_at(observation, link))
        }
        self._count_flaps(observation)

    def frame_repeated(self, netdev: str, at: float) -> None:
        """A neighbour that is known spoke on this netdev, `at` seconds since the epoch: no new observation for that."""
        if (interface := self._interfaces.get(netdev)) in self.last_frame_at:
            self.last_frame_at[interface] = at

    def rendered(
        self, labels: Sized, held: Sized = (), expired: int = 0, keys_too_long: int = 0
    ) -> None:
        """The labels that the Node should carry, those held of them; how many holds ran out since the last call."""
        self.labels, self.held, self.keys_too_long = len(labels), len(held), keys_too_long
        self.expired += expired

    def request(self, code: int | None) -> None:
        """A request was answered with this HTTP status, or not at all."""
        self.requests[str(code) if code and 100 <= code <= 599 else "none"] += 1

    def applied(self, at: float) -> None:
        """The Node says what it should, since `at` seconds since the epoch."""
        self.applied_at = at

    def refused(self, keys: Sized) -> None:
        """The keys that the API server does not take at present."""
        self.keys_refused = len(keys)

    def frames_dropped(self, dropped: Mapping[str, int]) -> None:
        """How many frames were dropped since the start, by why."""
        self.dropped = dict(dropped)

    def text(self) -> str:
        """The exposition of all of it."""
        if self._seen is None:
            self._seen = (
                "".join(row.exposed(self.observation) for row in OBSERVED)
                if self.observation
                else ""
            )
        return self._seen + "".join(row.exposed(self) for row in COUNTED)

    def of_ports(self, values: Mapping[str, float]) -> Iterable[Sample]:
        """A sample for each backend port."""
        roles = of.backend(self.observation) if self.observation else ()
        return [((role.interface,), values.get(role.interface, 0)) for role in roles]

    def _count_flaps(self, observation: Observation) -> None:
        """A port that leaves ACTIVE has flapped once more; one that cannot be read has not."""
        present = {
            role.interface: role.port.state == "ACTIVE"
            for role in of.backend(observation)
            if role.port.state
        }
        self.flaps.update(
            name for name, active in present.items() if self.active.get(name) and not active
        )
        self.active |= present
        if len(self.active) > MAX_PORTS:
            self.active = present
            self.flaps = Counter({name: self.flaps[name] for name in present})


def _by(values: Mapping[str, float]) -> Iterable[Sample]:
    """A sample for each key."""
    return [((key,), number) for key, number in values.items()]


def _one(number: float | None) -> Iterable[Sample]:
    """The sample of a metric without labels."""
    return [((), number)]


G, C = "gauge", "counter"
PORT = ("interface",)
INFO = (*PORT, "device", "port", "pci", "netdev", "link_layer", "hca_type", "board_id", "fw_ver")
NEIGHBOR = (*PORT, "via", "device", "port_id", "port_name", "chassis", "selected")
SOURCE = ("source",)

OBSERVED: tuple[Metric[Observation], ...] = (
    Metric(
        "bwagent_ports",
        G,
        "Ports of RDMA devices, by their part in the backend network.",
        ("role",),
        of.ports,
    ),
    Metric("bwagent_port_info", G, "A backend port, always 1.", INFO, of.port_info),
    Metric(
        "bwagent_port_state",
        G,
        "Whether the port is in that state.",
        (*PORT, "state"),
        of.port_state,
    ),
    Metric(
        "bwagent_port_rate_bytes_per_second",
        G,
        "Rate by the RDMA device, even while down.",
        PORT,
        of.port_rate,
    ),
    Metric(
        "bwagent_port_counted_bytes_per_second",
        G,
        "What the port adds to speed.current now.",
        PORT,
        of.port_counted,
    ),
    Metric(
        "bwagent_port_link_downed_total",
        C,
        "Links lost, as the HCA counts them.",
        PORT,
        of.port_link_downed,
    ),
    Metric("bwagent_speed_bytes_per_second", G, "The sum that speed.current says.", (), of.speed),
    Metric(
        "bwagent_suspect_rates",
        G,
        "ACTIVE ports at a rate that is too low for their HCA.",
        (),
        of.suspect_rates,
    ),
    Metric(
        "bwagent_neighbors",
        G,
        "Neighbours heard on the port; several are ambiguous.",
        PORT,
        of.neighbors,
    ),
    Metric(
        "bwagent_neighbor_info", G, "A neighbour of the port, always 1.", NEIGHBOR, of.neighbor_info
    ),
    Metric(
        "bwagent_neighbor_missing",
        G,
        "Why there is none, always 1.",
        (*PORT, "reason"),
        of.neighbor_missing,
    ),
    Metric(
        "bwagent_accelerator_info",
        G,
        "The NVLink domain, always 1.",
        ("domain",),
        of.accelerator_info,
    ),
    Metric(
        "bwagent_accelerator_missing",
        G,
        "Why there is no domain.",
        ("reason",),
        of.accelerator_missing,
    ),
    Metric(
        "bwagent_gpus",
        G,
        "GPUs, by the state of their fabric registration.",
        ("fabric_state",),
        of.gpus,
    ),
    Metric(
        "bwagent_gpus_unhealthy",
        G,
        "GPUs whose fabric health complains of something.",
        (),
        of.gpus_unhealthy,
    ),
    Metric(
        "bwagent_source_success",
        G,
        "Whether the source could look, the last time.",
        SOURCE,
        of.source_success,
    ),
    Metric(
        "bwagent_source_problems",
        G,
        "What it stumbled over, the last time.",
        SOURCE,
        of.source_problems,
    ),
)
COUNTED: tuple[Metric[Metrics], ...] = (
    Metric(
        "bwagent_port_flaps_total",
        C,
        "Times the port was seen to leave ACTIVE.",
        PORT,
        lambda m: m.of_ports(m.flaps),
    ),
    Metric(
        "bwagent_neighbor_last_heard_timestamp_seconds",
        G,
        "When a neighbour of the port last spoke.",
        PORT,
        lambda m: _by(m.last_frame_at),
    ),
    Metric(
        "bwagent_source_duration_seconds",
        G,
        "How long its last look took.",
        SOURCE,
        lambda m: _by(m.durations),
    ),
    Metric(
        "bwagent_source_last_success_timestamp_seconds",
        G,
        "When it could look, the last time.",
        SOURCE,
        lambda m: _by(m.succeeded),
    ),
    Metric(
        "bwagent_observations_total", C, "Looks at the node.", (), lambda m: _one(m.observations)
    ),
    Metric("bwagent_labels", G, "Labels that the Node should carry.", (), lambda m: _one(m.labels)),
    Metric(
        "bwagent_labels_held",
        G,
        "Those of them that cannot be seen now.",
        (),
        lambda m: _one(m.held),
    ),
    Metric(
        "bwagent_labels_expired_total",
        C,
        "Labels removed as --hold ran out.",
        (),
        lambda m: _one(m.expired),
    ),
    Metric(
        "bwagent_keys_too_long",
        G,
        "Keys that would be too long.",
        (),
        lambda m: _one(m.keys_too_long),
    ),
    Metric(
        "bwagent_keys_refused",
        G,
        "Keys that the API server refuses.",
        (),
        lambda m: _one(m.keys_refused),
    ),
    Metric(
        "bwagent_api_requests_total",
        C,
        "Requests, by HTTP status.",
        ("code",),
        lambda m: _by(m.requests),
    ),
    Metric(
        "bwagent_last_applied_timestamp_seconds",
        G,
        "When the Node was last right.",
        (),
        lambda m: _one(m.applied_at),
    ),
    Metric(
        "bwagent_lldp_frames_dropped_total",
        C,
        "Frames passed over.",
        ("reason",),
        lambda m: _by(m.dropped),
    ),
    Metric(
        "bwagent_build_info",
        G,
        "This agent, always 1.",
        ("version", "python"),
        lambda _: [((agent.__version__, sys.version.partition(" ")[0]), 1)],
    ),
)
PROCESS: tuple[Metric[Process], ...] = (
    Metric(
        "process_cpu_seconds_total",
        C,
        "CPU time used, user and system.",
        (),
        lambda p: _one(sum(p.cpu_times()[:2])),
    ),
    Metric(
        "process_resident_memory_bytes",
        G,
        "Resident memory.",
        (),
        lambda p: _one(p.memory_info()[0]),
    ),
    Metric("process_open_fds", G, "Open file descriptors.", (), lambda p: _one(p.num_fds())),
    Metric(
        "process_start_time_seconds",
        G,
        "When the process was started.",
        (),
        lambda p: _one(p.create_time()),
    ),
)


def own_process() -> Process:
    """This process, by psutil."""
    import psutil

    process: Process = psutil.Process()
    return process


def process_text(process: Process) -> str:
    """The exposition of the process as it is now; it touches nothing of the loop's."""
    return "".join(row.exposed(process) for row in PROCESS)
