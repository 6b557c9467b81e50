"""`bwagent run`: constructs the host's I/O, the loop and the metrics server, and runs them.

Everything is constructed before the loop starts, so that a wrong configuration ends the command at
once rather than hours later.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agent.daemon.background import BackgroundTask, pollers
from agent.daemon.loop import Loop
from agent.daemon.observer import Observer
from agent.daemon.policy_check import PolicyCheck
from agent.daemon.schedule import AwakeClock, Schedule, Settings
from agent.daemon.verification import Verification
from agent.errors import Unavailable
from agent.events.event import Notifier
from agent.events.monitor import Monitor, Monitors
from agent.events.port_states import PortStateSweep
from agent.helper.process import reap
from agent.infiniband.switch_names import TRIES, SwitchNames
from agent.kube.api import connect
from agent.kube.managed_fields import Keys
from agent.kube.reconcile import Reconciler
from agent.labels.table import Naming
from agent.limits import use_one_arena
from agent.live_host import live_host, with_fork_servers
from agent.lldp.driver_flags import DriverFlags, private_flags
from agent.lldp.inbox import FrameInbox
from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import Listener, RtnlWorker
from agent.lldp.reception import LldpNeighbors
from agent.memory import GRACE
from agent.sources.steady import RoleMemory
from agent.sysfs.worker import DeviceReaders
from agent.telemetry.certificates import Certificates, Files
from agent.telemetry.log import Log
from agent.telemetry.metrics import Metrics, registry
from agent.telemetry.readiness import Status
from agent.telemetry.reporter import Reporter
from agent.telemetry.server import Server
from agent.telemetry.verdict import VerdictReporter

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
    use_one_arena()
    certificates = None  # plain HTTP
    if configuration.metrics_cert and configuration.metrics_key:
        cert, key = configuration.metrics_cert, configuration.metrics_key
        certificates = Certificates(Files(cert, key, configuration.metrics_client_ca))
    clock, status = AwakeClock(), Status()
    with ExitStack() as stack:
        reporter = Reporter(
            Log(configuration.log_format, verbose=configuration.verbose),
            Metrics(),
            status,
            configuration.keys,
            configuration.node,
            time.time,
            clock,
            dry_run=configuration.dry_run,
            requires_policy=configuration.require_policy and not configuration.dry_run,
        )
        loop = _assemble(configuration, clock, reporter, stack)
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


def _assemble(
    configuration: Configuration, clock: AwakeClock, reporter: Reporter, stack: ExitStack
) -> Loop:
    """Construct the I/O and the loop over it; `stack` closes what holds descriptors or threads."""
    node, naming, settings = configuration.node, configuration.naming, configuration.settings
    random_number = random.SystemRandom().random
    # Threads wake the loop by these.
    results, facts, sockets = Notifier(), Notifier("facts"), Notifier("sockets")
    background = partial(BackgroundTask[Any], notify=results.notify)

    table = NeighborTable(GRACE, CONFIRMING_FRAMES)
    worker = RtnlWorker(sockets.notify)
    listener = Listener(clock, openvswitch=configuration.openvswitch, run=worker.submit)
    flags = DriverFlags(private_flags, worker.submit)
    inbox = FrameInbox(listener, table, clock, flags)

    ports = PortStateSweep(configuration.port_interval, sys=configuration.sysfs_root)
    # PID 1 of a container reaps orphans.
    signals = [signal.SIGHUP, *STOP_SIGNALS, *([signal.SIGCHLD] if os.getpid() == 1 else [])]
    others: list[Monitor] = [ports, results, facts, sockets]
    monitors = Monitors(frames=inbox.filenos, others=others, signals=signals)
    stack.callback(monitors.close)
    readers = DeviceReaders(facts.notify)
    stack.callback(readers.close)

    devices = configuration.excluded_devices, configuration.backend_devices
    options = configuration.source_options
    host = live_host(configuration.sysfs_root, *devices, LldpNeighbors(inbox, table), options)
    host = replace(
        with_fork_servers(host, options),
        clock=clock,
        readers=readers,
        deadline=READ_TIMEOUT,
        private_flags=flags,
        switch_names=SwitchNames(settings.hold, TRIES),
        roles=RoleMemory(clock),
    )
    host, polled = pollers(host, options, background)

    verdict = VerdictReporter(reporter.log, reporter.metrics, reporter.state, node)
    verification = Verification(host, node, naming, verdict, configuration.verdict_delay)
    plan = None
    if configuration.plan:
        from agent.daemon.plan_file import plan_file

        names = dict.fromkeys(filter(None, (node, host.name and host.name.lower())))
        plan = plan_file(configuration.plan, naming, tuple(names), background())
        verification.plan, verification.ask_owners = plan.rows, plan.also_planned

    kube = connect(configuration.kubeconfig, configuration.context)
    policy = recorder = None
    if not configuration.dry_run:  # it sends no PATCH
        policy = PolicyCheck(node, kube, background(), reporter, random_number)
    if configuration.events and not configuration.dry_run:
        from agent.daemon.recorder import Recorder

        log, metrics, task = reporter.log, reporter.metrics, background()
        recorder = Recorder(node, kube, task, log, metrics, clock, time.time, random_number)
    return Loop(
        clock=clock,
        monitors=monitors,
        port_states=ports,
        inbox=inbox,
        pollers=polled,
        observer=Observer(
            host, table, naming, configuration.sources, settings.hold, time.time, clock.left_out
        ),
        reconciler=Reconciler(kube, node, configuration.keys, configuration.dry_run),
        schedule=Schedule(settings, clock(), random_number),
        reporter=reporter,
        verification=verification,
        background=background,
        reap=reap,
        plan=plan,
        recorder=recorder,
        policy=policy,
    )
