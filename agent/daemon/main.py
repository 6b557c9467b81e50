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
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.daemon.assembly import KUBE, Io, RunFlags, assemble
from agent.daemon.awake_clock import AwakeClock
from agent.daemon.background import BackgroundTask
from agent.errors import Unavailable
from agent.events.event import Notifier
from agent.events.monitor import Monitor, Monitors
from agent.events.port_states import PortStateSweep
from agent.helper.process import reap
from agent.kube.api import connect
from agent.limits import use_one_arena
from agent.live_host import live_host, with_fork_server
from agent.lldp.driver_flags import DriverFlags, private_flags
from agent.lldp.packet_socket import Listener, RtnlWorker
from agent.sysfs.worker import DeviceReaders
from agent.telemetry.log import Log
from agent.telemetry.metrics import Exposition, Metrics
from agent.telemetry.readiness import Status
from agent.telemetry.reporter import Reporter
from agent.telemetry.server import Server

if TYPE_CHECKING:
    from agent.daemon.plan_file import PlanFile

READ_TIMEOUT = 0.2  # seconds that an observation waits for a device; a late device notifies
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


# The flags of `run` by what they are about, by the names of their options


class NodeFlags(NamedTuple):
    """What is read of this node."""

    sysfs_root: str
    backend_device: tuple[str, ...]
    exclude_device: tuple[str, ...]
    port_interval: float  # seconds
    openvswitch: bool


class ClusterFlags(NamedTuple):
    """The API server, and its policy."""

    kubeconfig: str | None
    context: str | None
    require_policy: bool


class OutputFlags(NamedTuple):
    """Log and metrics server."""

    verbose: bool
    log_format: str
    metrics_address: tuple[str, int] | None
    metrics_cert: str | None  # with `metrics_key`: serve over TLS
    metrics_key: str | None
    metrics_client_ca: str | None


class Configuration(NamedTuple):
    """The flags of `run`."""

    flags: RunFlags
    node: NodeFlags
    cluster: ClusterFlags
    output: OutputFlags
    plan: tuple[str, ...]  # files

    @classmethod
    def of(cls, flags: RunFlags, given: Mapping[str, Any]) -> Configuration:
        """Return it with the values that the command line gives the options."""
        node = NodeFlags._make(given[name] for name in NodeFlags._fields)
        cluster = ClusterFlags._make(given[name] for name in ClusterFlags._fields)
        output = OutputFlags._make(given[name] for name in OutputFlags._fields)
        return cls(flags, node, cluster, output, given["plan"])


def run(configuration: Configuration) -> None:
    """Run until SIGTERM or SIGINT; raises Unavailable if the agent cannot run."""
    use_one_arena()
    flags, output, clock, status = configuration.flags, configuration.output, AwakeClock(), Status()
    certificates = None  # plain HTTP
    if output.metrics_cert and output.metrics_key:
        from agent.telemetry.certificates import Certificates, Files

        files = Files(output.metrics_cert, output.metrics_key, output.metrics_client_ca)
        certificates = Certificates(files)
    with ExitStack() as stack:
        log = Log(output.log_format, verbose=output.verbose)
        reporter = Reporter(
            log,
            Metrics(),
            status,
            flags.keys,
            flags.node,
            time.time,
            clock,
            dry_run=flags.dry_run,
            requires_policy=configuration.cluster.require_policy and not flags.dry_run,
        )
        io = _live(configuration, clock, stack)
        loop = assemble(flags, io, reporter, _plan(configuration, io))
        reporter.started()
        if output.metrics_address:
            text = Exposition(reporter.metrics)
            server = Server(output.metrics_address, text, status, certificates=certificates)
            stack.callback(server.close)
            reporter.server = server
        gc.collect()  # classes with slots are made twice
        gc.freeze()  # modules stay until the process ends: do not scan them
        try:
            loop.run()
        except OSError as error:
            raise Unavailable(f"the loop has ended: {error}") from error


def _live(configuration: Configuration, clock: AwakeClock, stack: ExitStack) -> Io:
    """Return the I/O of this node; `stack` closes what holds descriptors or threads."""
    # Threads wake the loop by these.
    results, facts, sockets = Notifier(), Notifier("facts"), Notifier("sockets")
    worker = RtnlWorker(sockets.notify)
    node, cluster = configuration.node, configuration.cluster
    ports = PortStateSweep(node.port_interval, sys=node.sysfs_root)
    # PID 1 of a container reaps orphans.
    signals = [signal.SIGHUP, *STOP_SIGNALS, *([signal.SIGCHLD] if os.getpid() == 1 else [])]

    def monitors(frames: Callable[[], list[int]]) -> Monitors:
        others: list[Monitor] = [ports, results, facts, sockets]
        monitors = Monitors(frames=frames, others=others, signals=signals)
        stack.callback(monitors.close)
        return monitors

    readers = DeviceReaders(facts.notify)
    stack.callback(readers.close)
    options = configuration.flags.source_options
    host = live_host(node.sysfs_root, node.exclude_device, node.backend_device, None, options)
    host = replace(
        with_fork_server(host, options),
        readers=readers,
        deadline=READ_TIMEOUT,
        random=random.SystemRandom().random,
    )
    return Io(
        host=host,
        kube=connect(cluster.kubeconfig, cluster.context),
        listener=Listener(clock, openvswitch=node.openvswitch, run=worker.submit),
        monitors=monitors,
        port_states=ports,
        clock=clock,
        wall=time.time,
        background=lambda _name: BackgroundTask(notify=results.notify),
        private_flags=DriverFlags(private_flags, worker.submit),
        reap=reap,
    )


def _plan(configuration: Configuration, io: Io) -> PlanFile | None:
    if not configuration.plan:
        return None
    from agent.daemon.plan_file import plan_file

    node, naming, host = configuration.flags.node, configuration.flags.naming, io.host.name
    names = dict.fromkeys(filter(None, (node, host and host.lower())))
    return plan_file(configuration.plan, naming, tuple(names), io.background(KUBE))
