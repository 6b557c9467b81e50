"""`bwagent run`: constructs the host's I/O, the loop and the metrics server, and runs them.

Everything is constructed before the loop starts, so that a wrong configuration ends the command at
once rather than hours later.
"""

from __future__ import annotations

import gc
import random
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.daemon.background import BackgroundTask
from agent.daemon.clock import AwakeClock
from agent.daemon.loop import Components, Loop
from agent.daemon.observer import Observer
from agent.daemon.policy_check import PolicyCheck
from agent.daemon.pollers import pollers
from agent.daemon.reaper import is_init, reap
from agent.daemon.schedule import Schedule
from agent.daemon.verification import Verification
from agent.errors import Unavailable
from agent.events.event import Notifier
from agent.events.monitor import Monitors
from agent.events.port_states import PortStateSweep
from agent.helper.process import known_pids
from agent.infiniband.switch_names import TRIES, SwitchNames
from agent.kube.api import connect
from agent.kube.managed_fields import Keys
from agent.kube.reconcile import Reconciler
from agent.labels.holds import NEIGHBOR_GRACE
from agent.live_host import live_host, with_fork_servers
from agent.lldp.driver_flags import DriverFlags, private_flags
from agent.lldp.inbox import FrameInbox
from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import Listener, RtnlWorker
from agent.lldp.reception import LldpNeighbors
from agent.sysfs.worker import DeviceReaders
from agent.telemetry.log import Log
from agent.telemetry.metrics import Metrics, registry
from agent.telemetry.readiness import Status
from agent.telemetry.reporter import Reporter
from agent.telemetry.server import Server
from agent.telemetry.verdict import VerdictReporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.daemon.plan_file import PlanFile
    from agent.daemon.recorder import Recorder
    from agent.daemon.schedule import Settings
    from agent.events.monitor import Monitor
    from agent.host import Host
    from agent.kube.answers import Kube
    from agent.labels.table import Naming
    from agent.telemetry.certificates import Certificates

CONFIRMING_FRAMES = 2  # equal frames of a new neighbor before it replaces the one in a label
READ_TIMEOUT = 0.2  # seconds that an observation waits for a device; a late one notifies
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The flags of `run`."""

    node: str
    naming: Naming
    former_label_prefixes: tuple[str, ...]  # of either family
    settings: Settings
    sources: tuple[str, ...]
    backend_devices: tuple[str, ...]
    excluded_devices: tuple[str, ...]
    sysfs_root: str
    source_options: Mapping[str, Any]  # the flags by name, for the pollers and queries of sources
    kubeconfig: str | None
    context: str | None
    gpu_interval: float  # seconds
    port_interval: float  # seconds
    verdict_delay: float  # seconds
    metrics_address: tuple[str, int] | None
    metrics_cert: str | None  # with `metrics_key`: serve over TLS
    metrics_key: str | None
    metrics_client_ca: str | None
    plan: tuple[str, ...]  # files
    openvswitch: bool
    events: bool
    require_policy: bool
    dry_run: bool
    verbose: bool
    log_format: str

    @property
    def keys(self) -> Keys:
        """The label and annotation keys that the agent may write, and those that it may remove."""
        return Keys(self.naming, self.former_label_prefixes)


def run(configuration: Configuration) -> None:
    """Run until SIGTERM or SIGINT; raises Unavailable if the agent cannot run."""
    certificates = _certificates(configuration)
    with ExitStack() as stack:
        status = Status()
        loop, reporter = _assemble(configuration, status, stack)
        reporter.started()
        if configuration.metrics_address:
            families = registry(reporter.metrics)
            address = configuration.metrics_address
            server = Server(address, families, status, certificates=certificates)
            stack.callback(server.close)
            reporter.server_started(server)
        gc.freeze()  # modules stay until the process ends: do not scan them
        try:
            loop.run()
        except OSError as error:
            raise Unavailable(f"the loop has ended: {error}") from error


def _certificates(configuration: Configuration) -> Certificates | None:
    """Read the certificates of the metrics server, None for plain HTTP; raises Unavailable."""
    cert, key = configuration.metrics_cert, configuration.metrics_key
    if not (cert and key):
        return None
    from agent.telemetry.certificates import Certificates, Files

    return Certificates(Files(cert, key, configuration.metrics_client_ca))


class _Lldp(NamedTuple):
    """The parts that receive LLDP frames."""

    table: NeighborTable
    flags: DriverFlags
    inbox: FrameInbox


class _Io(NamedTuple):
    """The parts that hold descriptors or threads."""

    clock: AwakeClock
    lldp: _Lldp
    ports: PortStateSweep
    monitors: Monitors
    readers: DeviceReaders
    background: Callable[[], BackgroundTask[Any]]  # whose result wakes the loop


def _assemble(
    configuration: Configuration, status: Status, stack: ExitStack
) -> tuple[Loop, Reporter]:
    io = _io(configuration)
    stack.callback(io.monitors.close)
    stack.callback(io.readers.close)
    reporter = _reporter(configuration, status, io.clock)
    return Loop(_components(configuration, io, reporter)), reporter


def _io(configuration: Configuration) -> _Io:
    clock = AwakeClock()
    results, facts, sockets = Notifier(), Notifier("facts"), Notifier("sockets")
    lldp = _lldp(configuration, clock, sockets.notify)
    ports = PortStateSweep(configuration.port_interval, sys=configuration.sysfs_root)
    monitors = _monitors(lldp.inbox, [ports, results, facts, sockets])
    background = partial(BackgroundTask, notify=results.notify)
    return _Io(clock, lldp, ports, monitors, DeviceReaders(facts.notify), background)


def _components(configuration: Configuration, io: _Io, reporter: Reporter) -> Components:
    options = {**configuration.source_options, "gpu_interval": configuration.gpu_interval}
    host, polled = pollers(_host(configuration, io), options, io.background)
    plan = _plan(configuration, host, io)
    kube = connect(configuration.kubeconfig, configuration.context)
    return Components(
        clock=io.clock,
        monitors=io.monitors,
        port_states=io.ports,
        inbox=io.lldp.inbox,
        pollers=polled,
        observer=_observer(configuration, host, io.lldp.table),
        reconciler=Reconciler(kube, configuration.node, configuration.keys, configuration.dry_run),
        schedule=Schedule(configuration.settings, io.clock(), random.SystemRandom().random),
        reporter=reporter,
        verification=_verification(configuration, host, reporter, plan),
        background=io.background,
        reap=partial(reap, known_pids),
        plan=plan,
        recorder=_recorder(configuration, kube, io, reporter),
        policy=_policy(configuration, kube, io, reporter),
    )


def _policy(
    configuration: Configuration, kube: Kube, io: _Io, reporter: Reporter
) -> PolicyCheck | None:
    """Return the check of the policy; a dry run sends no PATCH, not even this one."""
    if configuration.dry_run:
        return None
    random_number = random.SystemRandom().random
    return PolicyCheck(configuration.node, kube, io.background(), reporter, random_number)


def _recorder(
    configuration: Configuration, kube: Kube, io: _Io, reporter: Reporter
) -> Recorder | None:
    if not configuration.events or configuration.dry_run:
        return None
    from agent.daemon.recorder import Recorder

    return Recorder(
        configuration.node,
        kube,
        io.background(),
        reporter.log,
        reporter.metrics,
        io.clock,
        time.time,
        random.SystemRandom().random,
    )


def _plan(configuration: Configuration, host: Host, io: _Io) -> PlanFile | None:
    if not configuration.plan:
        return None
    from agent.daemon.plan_file import plan_file

    names = dict.fromkeys(filter(None, (configuration.node, host.name and host.name.lower())))
    return plan_file(configuration.plan, configuration.naming, tuple(names), io.background())


def _verification(
    configuration: Configuration, host: Host, reporter: Reporter, plan: PlanFile | None
) -> Verification:
    node = configuration.node
    verdict = VerdictReporter(reporter.log, reporter.metrics, reporter.state, node)
    naming, delay = configuration.naming, configuration.verdict_delay
    if plan is None:
        return Verification(host, node, naming, verdict, delay)
    return Verification(host, node, naming, verdict, delay, plan.expected, plan.also_planned)


def _lldp(configuration: Configuration, clock: AwakeClock, notify: Callable[[], None]) -> _Lldp:
    table = NeighborTable(NEIGHBOR_GRACE, CONFIRMING_FRAMES)
    worker = RtnlWorker(notify)
    listener = Listener(clock, openvswitch=configuration.openvswitch, run=worker.submit)
    flags = DriverFlags(private_flags, worker.submit)
    return _Lldp(table, flags, FrameInbox(listener, table, clock, flags))


def _monitors(inbox: FrameInbox, others: Iterable[Monitor]) -> Monitors:
    signals = [signal.SIGHUP, *STOP_SIGNALS, *([signal.SIGCHLD] if is_init() else [])]
    return Monitors(frames=inbox.filenos, others=others, signals=signals)


def _host(configuration: Configuration, io: _Io) -> Host:
    devices = configuration.excluded_devices, configuration.backend_devices
    options = configuration.source_options
    neighbors = LldpNeighbors(io.lldp.inbox, io.lldp.table)
    host = live_host(configuration.sysfs_root, *devices, neighbors, options)
    host = replace(host, readers=io.readers, deadline=READ_TIMEOUT)
    host = with_fork_servers(host, options)
    names = SwitchNames(configuration.settings.hold, TRIES)
    return replace(host, clock=io.clock, private_flags=io.lldp.flags, switch_names=names)


def _reporter(configuration: Configuration, status: Status, clock: AwakeClock) -> Reporter:
    return Reporter(
        Log(configuration.log_format, verbose=configuration.verbose),
        Metrics(),
        status,
        configuration.keys,
        configuration.node,
        configuration.settings.hold,
        time.time,
        clock,
        dry_run=configuration.dry_run,
        requires_policy=configuration.require_policy and not configuration.dry_run,
    )


def _observer(configuration: Configuration, host: Host, table: NeighborTable) -> Observer:
    hold = configuration.settings.hold
    return Observer(host, table, configuration.naming, configuration.sources, hold, time.time)
