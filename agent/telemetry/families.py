"""The table of metrics: name, type, HELP text, labels and the function of the samples.

docs/metrics.md shows this table, and a test holds the two equal. A metric of one data source is a
row of that source; the metrics of the process come from prometheus_client
(agent/telemetry/collector.py).

Times are exposed as timestamps, not as ages: an age is outdated as soon as it is rendered.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import agent
from agent.helper.process import unended
from agent.metric import COUNTER, GAUGE, Metric, by_key, single
from agent.sources.table import SOURCES
from agent.telemetry import samples as of

if TYPE_CHECKING:
    from agent.model import Observation
    from agent.telemetry.metrics import Snapshot

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
OBSERVED: tuple[Metric[Observation], ...] = (
    Metric("bwagent_ports", GAUGE, "Ports of RDMA devices by role.", ("role",), of.ports),
    Metric("bwagent_backend_ports_lost", GAUGE,
           "Labeled ports whose HCA is gone from the bus.", (), of.ports_lost),
    Metric("bwagent_port_info", GAUGE, "A backend port, always 1.", PORT_INFO, of.port_info),
    Metric("bwagent_port_state", GAUGE,
           "Logical state of the port: 1 for the state that applies.",
           ("interface", "state"), of.port_state),
    Metric("bwagent_port_physical_state", GAUGE,
           "Physical state of the port: 1 for the state that applies.",
           ("interface", "state"), of.port_physical_state),
    Metric("bwagent_port_rate_bytes_per_second", GAUGE,
           "Rate of the RDMA port, also while it is down.", PORT, of.port_rate),
    Metric("bwagent_port_counted_bytes_per_second", GAUGE,
           "Part of the port in speed.current.", PORT, of.port_counted),
    Metric("bwagent_port_link_downed_total", COUNTER,
           "Lost links, counted by the HCA.", PORT, of.port_link_downed),
    Metric("bwagent_speed_bytes_per_second", GAUGE,
           "Sum of the counted rates, speed.current.", (), of.speed),
    Metric("bwagent_suspect_rates", GAUGE,
           "ACTIVE ports with a rate too low for their HCA.", (), of.suspect_rates),
    Metric("bwagent_neighbors", GAUGE,
           "Neighbors of the port; more than one is ambiguous.", PORT, of.neighbors),
    Metric("bwagent_neighbor_info", GAUGE,
           "A neighbor of the port, always 1.", NEIGHBOR, of.neighbor_info),
    Metric("bwagent_neighbor_missing", GAUGE,
           "Reason for a missing neighbor, always 1.",
           ("interface", "reason"), of.neighbor_missing),
    *(row for source in SOURCES for row in source.metrics()),
    Metric("bwagent_source_success", GAUGE,
           "1 if the source could be read in the last observation; 0 also if no port with a link "
           "could be asked for want of a privilege, library or device file.",
           SOURCE, of.source_success),
    Metric("bwagent_source_problems", GAUGE,
           "Failed reads and malformed values in the last observation.",
           SOURCE, of.source_problems),
)
# Counted by the loop since its start.
COUNTED: tuple[Metric[Snapshot], ...] = (
    Metric("bwagent_port_flaps_total", COUNTER,
           "Observed changes of the port from ACTIVE to another state.",
           PORT, lambda now: by_key(now.flaps_of_backend())),
    Metric("bwagent_neighbor_last_seen_timestamp_seconds", GAUGE,
           "Time of the last frame or SMP answer from a neighbor of the port.",
           PORT, lambda now: by_key(now.last_frame_at.items())),
    Metric("bwagent_source_duration_seconds", GAUGE,
           "Duration of the source's last read.",
           SOURCE, lambda now: by_key(now.durations.items())),
    Metric("bwagent_source_last_success_timestamp_seconds", GAUGE,
           "Time of the source's last successful read.",
           SOURCE, lambda now: by_key(now.succeeded_at.items())),
    Metric("bwagent_observations_total", COUNTER,
           "Observations of the node.", (), lambda now: single(now.observations)),
    Metric("bwagent_labels", GAUGE,
           "Labels that the Node should have.", (), lambda now: single(now.labels)),
    Metric("bwagent_labels_held", GAUGE,
           "Labels whose source fails at present.", (), lambda now: single(now.labels_held)),
    Metric("bwagent_labels_expired_total", COUNTER,
           "Labels removed at the end of --hold.", (), lambda now: single(now.labels_expired)),
    Metric("bwagent_keys_too_long", GAUGE,
           "Label keys over the length limit of Kubernetes.",
           (), lambda now: single(now.keys_too_long)),
    Metric("bwagent_keys_refused", GAUGE,
           "Label keys that the API server refuses.", (), lambda now: single(now.keys_refused)),
    Metric("bwagent_keys_left_alone", GAUGE,
           "Label keys that are left to another manager of the Node.",
           (), lambda now: single(now.keys_left_alone)),
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
           ("code", "interface"), lambda now: [(one, 1) for one in now.findings]),
    Metric("bwagent_verified_timestamp_seconds", GAUGE,
           "Time at which the cables were last compared with the plan.",
           (), lambda now: single(now.verified_at)),
    Metric("bwagent_plan_rows", GAUGE,
           "Cables of the node in its plan.", (), lambda now: single(now.plan_rows)),
    Metric("bwagent_plan_problem", GAUGE,
           "1 if a file of --plan, as it is now, is not in use.",
           (), lambda now: single(now.plan_problem)),
    Metric("bwagent_helper_processes_stuck", GAUGE,
           "Processes of helpers that were killed and still live, blocked in a driver.",
           (), lambda _: single(unended())),
    Metric("bwagent_build_info", GAUGE,
           "This agent, always 1.",
           ("version", "python"), lambda _: [((agent.__version__, PYTHON), 1)]),
)
# fmt: on
