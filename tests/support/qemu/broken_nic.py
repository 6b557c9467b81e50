"""`bwagent run` on a node whose NIC breaks, inside the emulated machine: `python -m
tests.support.qemu.broken_nic`.

The health reporter is a real one, of netdevsim (build_netdevsim.sh): its notifications, the monitor
that receives them, and the helper that asks for it are as on any node. netdevsim is no PCI function
and has no RDMA device, so the HCA is files, and the name of its function is put in the place of
netdevsim's. The API server is within the process.

It leaves health.json: what Prometheus and the API server were told after each step, and the
notifications in octets.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import agent.daemon.main as daemon
import agent.live_host as live_hosts
from agent.cli import main as bwagent
from agent.events import netlink
from agent.helper.process import call
from tests.support.kernel_tree import bdf, rails
from tests.support.running import BOOT, Api
from tests.support.switch import wait_for
from tests.support.sysfs_on_disk import lay

NIC, SIMULATED = bdf(0), "netdevsim/netdevsim1"
ADDRESS = "127.0.0.1:9477"
PATIENCE = 900.0  # seconds; an emulated machine under load takes minutes to start an agent
HEALTH = Path("/sys/kernel/debug/netdevsim/netdevsim1/health")
TOLD: dict[str, Any] = {"notifications": [], "questions": 0, "steps": {}}


def call_about_pci(verb: str, payload: Any, _seconds: float) -> Any:
    """Run a helper, for which the emulated machine needs long."""
    answer = json.dumps(call(verb, payload, PATIENCE))
    TOLD["questions"] += 1
    return json.loads(answer.replace(SIMULATED, NIC))


def notified_of_pci(
    data: bytes, family: int, notified: Callable[[bytes, int], Iterator[str]] = netlink.notified
) -> Iterator[str]:
    """Keep the octets of notifications."""
    for name in notified(data, family):
        TOLD["notifications"].append(data.hex())
        yield name.replace(SIMULATED, NIC)


def state(api: Api) -> dict[str, Any]:
    """Return the metric of reporters in error, and the texts of the Events about the NIC."""
    with urllib.request.urlopen(f"http://{ADDRESS}/metrics", timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    events = [event for event in api.events.values() if event["reason"] == "NicUnhealthy"]
    return {
        "metrics": [line for line in lines if line.startswith("bwagent_nic_unhealthy")],
        "events": [event["message"] for event in events],
    }


def steps(api: Api) -> None:
    """Take the steps, and stop the agent."""
    try:
        wait_for(lambda: TOLD["questions"], PATIENCE)
        TOLD["steps"]["whole"] = state(api)
        (HEALTH / "fail_recover").write_text("Y")
        with suppress(OSError):  # that of the driver, which cannot recover
            (HEALTH / "break_health").write_text("broken")
        wait_for(lambda: all(state(api).values()), PATIENCE)
        TOLD["steps"]["broken"] = state(api)
        (HEALTH / "fail_recover").write_text("N")
        recover = ("devlink", "health", "recover", SIMULATED, "reporter", "dummy")
        subprocess.run(recover, check=True)
        wait_for(lambda: not state(api)["metrics"], PATIENCE)
        TOLD["steps"]["recovered"] = state(api)
        Path("health.json").write_text(json.dumps(TOLD))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the agent in this thread, which has the signals."""
    api, tree = Api(), lay({**BOOT, **rails(1)}, Path("/run/node"))
    vars(daemon)["connect"] = lambda *_: api
    vars(live_hosts)["call"] = call_about_pci
    vars(netlink)["notified"] = notified_of_pci
    threading.Thread(target=steps, args=(api,), daemon=True).start()
    sys.argv[1:] = [
        *("run", "--node-name", "n1", "--events", "--sysfs-root", str(tree)),
        *("--metrics-address", ADDRESS, "--source", "rdma"),
    ]
    bwagent()


if __name__ == "__main__":
    main()
