"""Construct an agent: its loop over the I/O of a node and of the API server.

Nothing is constructed here that talks to anything outside: all that enters is in `Io`, which
`bwagent run` fills with the real parts and a simulation with its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.daemon.awake_clock import AwakeClock
from agent.daemon.background import BackgroundTask, Companion, pollers
from agent.daemon.loop import EventSources, Loop, PortStates
from agent.daemon.observer import Observer
from agent.daemon.policy_check import PolicyCheck
from agent.daemon.schedule import Schedule, Settings
from agent.daemon.verification import Verification
from agent.encode import Naming
from agent.host import Host
from agent.kube.answers import Kube
from agent.kube.managed_fields import Keys
from agent.kube.reconcile import Reconciler
from agent.kube.this_host import of_this_host
from agent.lldp.driver_flags import DriverFlags
from agent.lldp.inbox import FrameInbox, Frames
from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import run_at_once
from agent.lldp.reception import LldpNeighbors
from agent.memory import GRACE
from agent.sources.memories import Memories
from agent.sources.observe import read_boot_id
from agent.sources.steady import RoleMemory
from agent.telemetry.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.daemon.plan_file import PlanFile

CONFIRMING_FRAMES = 2  # equal frames of a new neighbor before it replaces that in a label
KUBE = "kube"  # what a task of requests is for


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The flags of `run` that the agent's parts depend on."""

    node: str
    naming: Naming = field(default_factory=Naming)
    former_label_prefixes: tuple[str, ...] = ()  # of either family
    settings: Settings = field(default_factory=Settings)
    sources: tuple[str, ...] = ()
    # all flags by name (agent/options.py), for the I/O of the node and the pollers
    options: Mapping[str, Any] = field(default_factory=dict)
    verdict_delay: float = 60.0  # seconds
    force_node: bool = False  # the Node need not be this host
    events: bool = False
    dry_run: bool = False

    @property
    def keys(self) -> Keys:
        """The label and annotation keys that the agent may write, and those that it may remove."""
        return Keys(self.naming, self.former_label_prefixes)


@dataclass(frozen=True, slots=True)
class Io:
    """All that enters an agent from outside."""

    host: Host  # its queries may block: pollers ask them in the background
    kube: Kube
    listener: Frames  # of LLDP
    # of a function that returns the descriptors of the LLDP sockets
    monitors: Callable[[Callable[[], list[int]]], EventSources]
    port_states: PortStates
    clock: AwakeClock
    wall: Callable[[], float]  # seconds since the epoch
    # a task by what it is for: a source's name, or KUBE
    background: Callable[[str], BackgroundTask[Any]]
    # of the drivers (ethtool), by netdev
    private_flags: DriverFlags = field(
        default_factory=lambda: DriverFlags(lambda _netdev: {}, run_at_once)
    )
    reap: Callable[[], object] = lambda: None  # reaps orphans (agent/helper/process.py)


def assemble(
    flags: RunFlags,
    io: Io,
    reporter: Reporter,
    plan: PlanFile | None = None,
    *,
    checks_policy: bool = True,
) -> Loop:
    """Return the loop of an agent; `plan` is that of --plan."""
    node, naming, settings, clock = flags.node, flags.naming, flags.settings, io.clock
    table = NeighborTable(GRACE, CONFIRMING_FRAMES)
    inbox = FrameInbox(io.listener, table, clock, io.private_flags)
    host = replace(
        io.host,
        clock=clock,
        lldp_neighbors=LldpNeighbors(inbox, table, woke_at=lambda: clock.woke_at),
        private_flags=io.private_flags,
    )
    memories = Memories(roles=RoleMemory(clock, io.wall, settings.hold), wall=io.wall)
    host, polled = pollers(host, memories, flags.options, io.background)
    companions: list[Companion] = []
    if host.ask_nics:
        from agent.daemon.nic_health import NicHealthPoller

        task = io.background(NicHealthPoller.source)
        health = NicHealthPoller(host.ask_nics, task, host.random)
        host = replace(host, ask_nics=health)
        companions.append(health)

    verification = Verification(host, node, naming, reporter, flags.verdict_delay, plan)
    if plan:
        plan.report = reporter.plan_read
        companions.append(plan)

    boot_id = None if flags.force_node else read_boot_id(host.root)[0]
    kube = of_this_host(io.kube, boot_id)
    if checks_policy and not flags.dry_run:  # it sends no PATCH
        companions.append(PolicyCheck(node, kube, io.background(KUBE), reporter, host.random))
    if flags.events and not flags.dry_run:
        from agent.daemon.recorder import Recorder

        log, metrics, task = reporter.log, reporter.metrics, io.background(KUBE)
        recorder = Recorder(node, kube, task, log, metrics, clock, io.wall, host.random)
        companions.append(recorder)
    return Loop(
        clock=clock,
        monitors=io.monitors(inbox.filenos),
        port_states=io.port_states,
        inbox=inbox,
        pollers=polled,
        observer=Observer(
            host,
            memories,
            table,
            flags.keys,
            flags.sources,
            settings,
            io.wall,
            left_out=clock.left_out,
        ),
        reconciler=Reconciler(kube, node, flags.keys, flags.dry_run),
        schedule=Schedule(settings, clock(), host.random),
        reporter=reporter,
        verification=verification,
        background=partial(io.background, KUBE),
        reap=io.reap,
        companions=companions,
    )
