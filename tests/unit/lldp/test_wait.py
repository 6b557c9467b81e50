"""The wait of `probe` for LLDP frames: when it ends, and what its progress says."""

from __future__ import annotations

import errno
import os
import socket
import sys

import pytest

from agent.lldp.inbox import LldpWait, Netdevs, progress
from agent.lldp.packet_socket import Listener

PORTS = {f"eth{number}": True for number in range(8)}


def gone(_netdev: str) -> socket.socket:
    raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))


def test_ports_that_failed_have_no_neighbor() -> None:
    """A wait for eight netdevs that are gone ends at once, and reports none as received."""
    calls: list[Netdevs] = []
    wait = LldpWait(None, lambda netdevs, _left: calls.append(netdevs), Listener(open_socket=gone))
    frames, errors = wait(PORTS)
    assert frames == []
    assert errors == dict.fromkeys(PORTS, "ENODEV: No such device")
    assert calls == [Netdevs(set(), set(PORTS), set())]
    assert (wait.elapsed, wait.notes()) == (0.0, [])


@pytest.mark.parametrize(
    ("netdevs", "line"),
    [
        (
            Netdevs({"eth2"}, set(), {"eth10", "eth9"}),
            "LLDP: neighbors on 1 of 3 ports, 64 s left; awaited: eth9 eth10",
        ),
        (
            Netdevs({"eth2"}, {"eth3", "eth4"}, {"eth9"}),
            "LLDP: neighbors on 1 of 4 ports, 2 failed, 64 s left; awaited: eth9",
        ),
        (Netdevs(set(), {"eth3"}, set()), "LLDP: neighbors on 0 of 1 ports, 1 failed, 64 s left"),
    ],
)
def test_progress(
    netdevs: Netdevs,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line on a terminal has the ports with a neighbor, without a socket, and awaited."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress(netdevs, 64.2)
    assert capsys.readouterr().err == f"\r{line:<79}"
