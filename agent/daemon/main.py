"""`bwagent run`: an agent over the I/O of this node, its loop, and the metrics server.

    RunFlags, Io, Reporter -> assemble() -> Loop

All that enters an agent from outside is in `Io`: `run` fills it with the real parts, and a
simulation with its own. Everything is constructed before the loop starts, so that a wrong
configuration ends the command at once rather than hours later.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.daemon.background import BackgroundTask, Companion, pollers
from agent.daemon.loop import AwakeClock, EventSources, Loop, PortStates
from agent.daemon.observer import Observer
from agent.daemon.policy_check import PolicyCheck
from agent.daemon.schedule import Schedule, Settings
from agent.daemon.verification import Verification
from agent.encode import Naming
from agent.errors import Unavailable
from agent.events.event import Notifier
from agent.events.monitor import Monitor, Monitors
from agent.events.port_states import PortStateSweep
from agent.helper.process import reap
from agent.host import Host
from agent.kube.answers import Kube
from agent.kube.api import connect
from agent.kube.managed_fields import Keys
from agent.kube.nodes import of_this_host
from agent.kube.reconcile import Reconciler
from agent.limits import use_one_arena
from agent.live_host import live_host, with_fork_server
from agent.lldp.driver_flags import DriverFlags, private_flags
from agent.lldp.inbox import FrameInbox, Frames
from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import Listener, RtnlWorker, run_at_once
from agent.lldp.reception import LldpNeighbors
from agent.memory import GRACE
from agent.sources.observe import Memories, read_boot_id
from agent.sources.steady import RoleMemory
from agent.sysfs.worker import DeviceReaders
from agent.telemetry.log import Log
from agent.telemetry.metrics import Exposition, Metrics
from agent.telemetry.readiness import Status
from agent.telemetry.reporter import Reporter
from agent.telemetry.server import Certificates, Files, Server

if TYPE_CHECKING:
    from agent.daemon.plan_file import PlanFile

CONFIRMING_FRAMES = 2  # equal frames of a new neighbor before it replaces that in a label
KUBE = "kube"  # what a task of requests is for
READ_TIMEOUT = 0.2  # seconds that an observation waits for a device; a late device notifies
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
    kube: Kube  # sends a Request, returns the Answer, never raises (agent/kube/answers.py)
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
    readers: DeviceReaders | None = None  # their threads wake the loop


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
    host = io.host._replace(
        clock=clock,
        lldp_neighbors=LldpNeighbors(inbox, table, woke_at=lambda: clock.woke_at),
        private_flags=io.private_flags,
    )
    readers = io.readers or host.device_readers()
    memories = Memories(readers, roles=RoleMemory(clock, io.wall, settings.hold), wall=io.wall)
    host, polled = pollers(host, memories, flags.options, io.background)
    companions: list[Companion] = []
    if host.ask_nics:
        from agent.daemon.nic_health import NicHealthPoller

        task = io.background(NicHealthPoller.source)
        health = NicHealthPoller(host.ask_nics, task, host.random)
        host = host._replace(ask_nics=health)
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


def run(flags: RunFlags) -> None:
    """Run until SIGTERM or SIGINT; raises Unavailable if the agent cannot run."""
    use_one_arena()
    given, clock, status = flags.options, AwakeClock(), Status()
    certificates = None  # plain HTTP
    if given["metrics_cert"] and given["metrics_key"]:
        files = Files(given["metrics_cert"], given["metrics_key"], given["metrics_client_ca"])
        certificates = Certificates(files)
    with ExitStack() as stack:
        log = Log(given["log_format"], verbose=given["verbose"])
        reporter = Reporter(
            log,
            Metrics(),
            status,
            flags.keys,
            flags.node,
            time.time,
            clock,
            dry_run=flags.dry_run,
            requires_policy=given["require_policy"] and not flags.dry_run,
        )
        io = _live(given, clock, stack)
        plan = None
        if given["plan"]:
            from agent.daemon.plan_file import PlanFile

            name, task = io.host.name, io.background(KUBE)
            names = dict.fromkeys(filter(None, (flags.node, name and name.lower())))
            plan = PlanFile(given["plan"], [*names], flags.naming, task)
        loop = assemble(flags, io, reporter, plan)
        reporter.started()
        if given["metrics_address"]:
            text = Exposition(reporter.metrics)
            server = Server(given["metrics_address"], text, status, certificates=certificates)
            stack.callback(server.close)
            reporter.server = server
        gc.collect()  # classes with slots are made twice
        gc.freeze()  # modules stay until the process ends: do not scan them
        try:
            loop.run()
        except OSError as error:
            raise Unavailable(f"the loop has ended: {error}") from error


def _live(given: Mapping[str, Any], clock: AwakeClock, stack: ExitStack) -> Io:
    """Return the I/O of this node; `stack` closes what holds descriptors or threads."""
    # Threads wake the loop by these.
    results, facts, sockets = Notifier(), Notifier("facts"), Notifier("sockets")
    worker = RtnlWorker(sockets.notify)
    root = given["sysfs_root"]
    ports = PortStateSweep(given["port_interval"], sys=root)
    # PID 1 of a container reaps orphans.
    signals = [signal.SIGHUP, *STOP_SIGNALS, *([signal.SIGCHLD] if os.getpid() == 1 else [])]

    def monitors(frames: Callable[[], list[int]]) -> Monitors:
        others: list[Monitor] = [ports, results, facts, sockets]
        monitors = Monitors(frames=frames, others=others, signals=signals)
        stack.callback(monitors.close)
        return monitors

    readers = DeviceReaders(facts.notify)
    stack.callback(readers.close)
    host = live_host(root, given["exclude_device"], given["backend_device"], None, given)
    host = with_fork_server(host, given)._replace(
        deadline=READ_TIMEOUT,
        random=random.SystemRandom().random,
    )
    return Io(
        host=host,
        kube=connect(given["kubeconfig"], given["context"]),
        listener=Listener(clock, openvswitch=given["openvswitch"], run=worker.submit),
        monitors=monitors,
        port_states=ports,
        clock=clock,
        wall=time.time,
        background=lambda _name: BackgroundTask(notify=results.notify),
        private_flags=DriverFlags(private_flags, worker.submit),
        reap=reap,
        readers=readers,
    )
