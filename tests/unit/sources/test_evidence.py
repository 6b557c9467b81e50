"""Roles by evidence over the machine folders: hints, privileges, and what must not matter."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from agent.encode import Naming
from agent.labels.render import render
from agent.memory import known_of
from agent.model import Seen
from agent.snapshot.replay import replay
from agent.sources.left_out import left_out
from agent.sources.observe import observe
from tests.support.devices import decide
from tests.support.kernel_tree import BeforeReads
from tests.support.machines import MACHINES, evidence_of, observed
from tests.support.nodes import PREFIX
from tests.support.shuffle import Shuffle

every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda path: path.name)
DECIDED = {f"{PREFIX}/flavor", f"{PREFIX}/speed.current"}

# The machines whose backend is in doubt, with the ports that the hints name. All others have no
# hint: their storage, front end, VFs and management functions are told apart.
IN_DOUBT = {
    "dell-xe9680-bf3": {"rocep157s0f0-eth7", "rocep157s0f0-eth8"},
    "dgx-b200": {"mlx5_12", "mlx5_13", "mlx5_14", "mlx5_15"},
    "dgx-b300": {"mlx5_12", "mlx5_13", "mlx5_14", "mlx5_15"},
    "hgx-b300-no-vpd": {"mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11"},
    "hgx-b300-roce": {"mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11"},
    "lenovo-sr675-rtx6000": {f"mlx5_{number}" for number in range(2, 12)},
    "mixed-ib-storage": {"mlx5_1", "mlx5_7"},
    "mlx4-dual": {"mlx4_0"},
    "socket-direct": {"mlx5_3"},
    "supermicro-h200-storage-near": {"mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11"},
}


@pytest.mark.slow
@every_machine
def test_only_a_backend_in_doubt_has_a_hint(machine: Path) -> None:
    """Nothing is lost silently, and a machine without doubt needs no word."""
    observation = observed(machine)[1]
    named = {name for hint in observation.hints for name in hint.interfaces}
    assert named == IN_DOUBT.get(machine.name, set())
    active = {
        role.interface
        for role in observation.ports
        if role.interface in named and role.port.state == "ACTIVE" and not role.backend
    }
    assert {role.interface for role in left_out(observation)} == active


def unprivileged(path: str) -> None:
    """Fail for what only root may read."""
    if path.endswith("/vpd"):  # drivers/pci/vpd.c: mode 0600
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)


@pytest.mark.slow
@every_machine
def test_without_root_there_are_fewer_labels_and_never_wrong_ones(machine: Path) -> None:
    """Speed and flavor are equal; the machine's README lists what is absent."""
    host, whole = observed(machine)
    labels = render(known_of(whole), Naming()).labels

    def not_permitted(ports: Any) -> dict[str, Any]:
        return {"ports": [], "failed": [[*port, "not-permitted", ""] for port in ports]}

    bare = replay(str(machine))._replace(
        root=BeforeReads(host.root, unprivileged),
        lldp_neighbors=None,
        ask_smp=not_permitted,
    )
    fewer = render(known_of(observe(bare)), Naming()).labels
    assert {key: fewer.get(key) for key in DECIDED} == {key: labels.get(key) for key in DECIDED}
    assert fewer.items() <= labels.items()
    absent = {key.partition("/")[2].partition(".")[0] for key in labels.keys() - fewer.keys()}
    line = re.search(
        r"^Without root: no (.+), since", (machine / "README.md").read_text(), re.MULTILINE
    )
    assert set(re.findall(r"`(\w+)`", line[1]) if line else ()) == absent


# Of a Socket-Direct card the function at the lower address counts.
BY_ADDRESS = {"dgx-spark"}


@every_machine
def test_names_buses_and_order_change_no_role(machine: Path) -> None:
    """Every boot may number buses and devices anew."""
    evidence, observation = evidence_of(machine)
    if not isinstance(observation.rdma, Seen):  # no RDMA device
        assert observation.ports == ()
        return
    before = {(one.device.name, one.port.number): one.backend for one in observation.ports}
    for seed in range(3):
        shuffle = Shuffle(seed)
        names, devices = shuffle.devices(observation.rdma.value)
        route = shuffle.front_end(evidence.front_end)
        roles = decide(devices, bus=shuffle.bus(evidence.bus.bus), front_end=route).roles
        after = {(one.device.name, one.port.number): one.backend for one in roles}
        if machine.name in BY_ADDRESS:
            assert sorted(after.values()) == sorted(before.values())
        else:
            assert after == {(names[name], number): role for (name, number), role in before.items()}
