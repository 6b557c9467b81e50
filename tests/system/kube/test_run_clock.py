"""`bwagent run` while the time of day jumps, and while its token expires without an API server that
could give it a new one.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.facts import parse_time
from tests.support.kernel_tree import CLASS, Entries
from tests.support.kube.agents import install
from tests.support.kube.cluster import Cluster
from tests.support.kube.programs import missing
from tests.support.kube.resident import Agent, P
from tests.support.real_parts import require
from tests.support.sysfs_on_disk import remove
from tests.support.wall_clock import WallClock
from tests.support.wall_clock import missing as no_compiler

HOUR = 3600
LEEWAY = 60  # seconds for which an API server accepts a token after its end
LEFT = 8.0  # seconds that are left of a token


@pytest.mark.parametrize("jump", [pytest.param(HOUR, marks=pytest.mark.sweep), -HOUR])
def test_the_clock_jumps(cluster: Cluster, tmp_path: Path, two: Entries, jump: int) -> None:
    """Nothing expires and nothing is sent because of the time of day; what happens next is on the
    Node at once, before and after the clock is set right again.
    """
    require(no_compiler())
    clock = WallClock(tmp_path)
    cluster.node(f"run-clock-{jump}")
    with Agent(cluster, tmp_path, f"run-clock-{jump}", two, environment=clock.environment) as agent:
        agent.speaks("800G")
        remove(tmp_path, f"{CLASS}/ibp1")  # its function is on the bus: the speed is held
        agent.look()
        agent.says("rdma problem subject=ibp1")
        before = settled(agent)
        clock.set(jump)
        agent.look()
        time.sleep(3)
        assert agent.labels()["speed.current"] == "800G"
        # SIGHUP reads the Node; the annotation keeps since when a port is unread after a minute.
        assert agent.requests() <= before + 3
        agent.set("ibp0", "state", "1: DOWN")
        agent.until(lambda: abs(observed(agent) - time.time() - jump) < 60)
        clock.set(0)
        agent.set("ibp0", "state", "4: ACTIVE")
        agent.look()
        agent.until(lambda: abs(observed(agent) - time.time()) < 60)
        assert "another bwagent" not in agent.log.read_text()


def settled(agent: Agent) -> float:
    """Return the number of its requests once none was added for two seconds: a busy machine is late
    with those that the start caused.
    """
    while True:
        before = agent.requests()
        time.sleep(2)
        if agent.requests() == before:
            return before


def observed(agent: Agent) -> float:
    """Return the time of the last observation that the Node has."""
    found = json.loads(agent.metadata()["annotations"][f"{P}/observed"])
    times = [found["time"], (found.get("partial") or {}).get("time")]
    return max(parse_time(one) for one in times if one)


class Projected(Cluster):
    """An API server whose clients have their tokens in a file, as a kubelet writes it."""

    def kubeconfig(self, token: str | None = None) -> Path:
        """Write a kubeconfig that names the file with the token."""
        path = super().kubeconfig(token)
        if token:
            config = json.loads(path.read_text())
            config["users"][0]["user"] = {"tokenFile": str(self.folder / "token")}
            path.write_text(json.dumps(config))
            self.renew(token)
        return path

    def renew(self, token: str) -> None:
        """Put another token into the file, at once."""
        part = self.folder / "token.part"
        part.write_text(token)
        part.replace(self.folder / "token")


@pytest.fixture
def away() -> Iterator[Projected]:
    """An API server of its own, with the manifests in it."""
    require(missing())
    with Projected() as cluster:
        install(cluster, "sysfs")
        yield cluster


def ending(cluster: Cluster, token: str, seconds: float) -> str:
    """Return the same token, signed anew, that is not accepted after so many seconds."""
    head, claims, _ = token.split(".")
    fields: dict[str, Any] = json.loads(base64.urlsafe_b64decode(claims + "=="))
    fields["exp"] = int(time.time() + seconds - LEEWAY)
    signed = f"{head}.{_word(json.dumps(fields).encode())}"
    command = ["openssl", "dgst", "-sha256", "-sign", str(cluster.service_account_key)]
    done = subprocess.run(command, input=signed.encode(), check=True, capture_output=True)
    return f"{signed}.{_word(_numbers(done.stdout))}"


def _word(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _numbers(der: bytes) -> bytes:
    """Return the two numbers of a signature, as JWS has them."""
    first = der[4 : 4 + der[3]]
    second = der[6 + der[3] :]
    return b"".join(one.lstrip(b"\0").rjust(32, b"\0") for one in (first, second))


def rejections(agent: Agent) -> int:
    """Return the number of lines about a token that was not accepted."""
    return agent.log.read_text().count("rejected the token")


def is_answered(agent: Agent, rejected: int) -> bool:
    """Return True if the Node has labels, or a token was rejected once more."""
    return bool(agent.labels()) or rejections(agent) > rejected


def test_a_token_expires_without_api_server(away: Projected, tmp_path: Path, two: Entries) -> None:
    """No kubelet gets a new token either. What changed meanwhile is on the Node once the API server
    and a new token are there; the labels stay until then, and the agent is not restarted.
    """
    away.node("run-token")
    token = away.token_for_pod_on("run-token", "bwagent", "bwagent")
    left = LEFT
    with Agent(away, tmp_path, "run-token", two, token=ending(away, token, left)) as agent:
        while not agent.labels():
            before = rejections(agent)
            agent.until(partial(is_answered, agent, before))
            if rejections(agent) > before:  # a busy machine takes longer than it lasts
                left *= 2
                away.renew(ending(away, token, left))
        agent.speaks("800G")
        away.stop_server()
        before = rejections(agent)
        agent.set("ibp1", "state", "1: DOWN")
        time.sleep(left)
        away.start_server()
        agent.look()  # ends the wait after a failure, which grew while the machine was busy
        agent.until(lambda: rejections(agent) > before)
        assert agent.labels()["speed.current"] == "800G"
        away.renew(token)
        agent.look()
        agent.speaks("400G")
        assert agent.process.poll() is None
