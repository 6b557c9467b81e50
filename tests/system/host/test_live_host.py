"""Queries of InfiniBand ports as the live host makes them, in real helper processes over a
libibumad that stands in.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent import live_host
from agent.infiniband.devices import SubnetPort

if TYPE_CHECKING:
    import pytest

NAMES = [f"mlx5_{number}" for number in range(3)]
TIMEOUT = 3.0  # seconds for a process; its start takes one where the machine is busy


def test_a_device_that_blocks_takes_no_other_with_it(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have their neighbors, by SMPs and by the subnet administrator; and it has its own
    once it answers.
    """
    for name in ("SMP_TIMEOUT", "SMP_DEVICE_TIMEOUT", "SA_TIMEOUT"):
        monkeypatch.setattr(live_host, name, TIMEOUT)
    monkeypatch.setattr(live_host, "SA_PORT_LIMIT", 0.1)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(Path(library).parent))
    monkeypatch.setenv("STAND_IN", "mlx5_1:blocks")
    host = live_host.live_host("/sys", (), (), None, {})
    ports = [(name, 1) for name in NAMES]
    answers = host.ask_smp(ports), host.ask_sa([SubnetPort(*port, 22, 9, 2, 0) for port in ports])
    for answer in answers:
        errors = {entry["device"]: entry["error"] for entry in answer["ports"]}
        assert errors == {"mlx5_0": None, "mlx5_1": "no-answer", "mlx5_2": None}
    assert answers[0]["failed"] == [["mlx5_1", 1]]
    monkeypatch.delenv("STAND_IN")
    assert host.ask_smp(ports)["failed"] == []
