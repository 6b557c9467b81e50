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
from typing import Any

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

READ_TIMEOUT = 0.2  # seconds that an observation waits for a device; a late device notifies
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(flags: RunFlags) -> None:
    """Run until SIGTERM or SIGINT; raises Unavailable if the agent cannot run."""
    use_one_arena()
    given, clock, status = flags.options, AwakeClock(), Status()
    certificates = None  # plain HTTP
    if given["metrics_cert"] and given["metrics_key"]:
        from agent.telemetry.certificates import Certificates, Files

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
    host = replace(
        with_fork_server(host, given),
        readers=readers,
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
    )
