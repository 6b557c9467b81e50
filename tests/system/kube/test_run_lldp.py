"""`bwagent run` on a RoCE node, each port of which belongs to one test
(tests/support/kube/rack.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.support.kube.cluster import Cluster
from tests.support.kube.rack import (
    ADDRESS,
    FLOODED,
    GOODBYE,
    MOVED,
    PULLED,
    SILENT,
    STAYS,
    Rack,
    cabled,
)
from tests.support.kube.resident import P
from tests.support.lldp_frames import END, capabilities, ethernet, identity, tlv
from tests.support.real_parts import require
from tests.support.switch import missing

GRACE = 30.0  # seconds for which a neighbor that is gone still counts
FRAMES, AT_ONCE, PAUSE = 3600, 60, 0.05  # of a flood
MAY_GROW = 8 << 20  # bytes of resident memory; a flood of these cost one MiB


@pytest.fixture(scope="module")
def rack(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """A RoCE node in a rack with the agent on it; its changes take their time while other
    tests run.
    """
    require(missing())
    with cabled(cluster, tmp_path_factory.mktemp("rack")) as rack:
        yield rack


def test_metrics_come_with_their_address(rack: Rack) -> None:
    """The node's address was missing at the start: the agent worked meanwhile, logged it once, and
    serves now.
    """
    assert rack.agent.log.read_text().count(f"cannot serve metrics on {ADDRESS} port") == 1
    metrics = rack.agent.metrics()
    assert metrics.value("bwagent_speed_bytes_per_second") == 60e9 / 8
    assert rack.told(STAYS)[0]["via"] == "lldp"
    metrics.lint()


def test_a_cable_that_is_moved(rack: Rack) -> None:
    """The other leaf sends on the port: after two of its frames it is the neighbor."""
    rack.until(MOVED, "leaf1", f"swp{MOVED}")


def test_a_hostile_neighbour(rack: Rack) -> None:
    """Frames of thousands of chassis with text that breaks logs and parsers: the label stays right;
    memory, series and log are bounded.

    Meanwhile the leaf is renamed, and the labels of all of its ports change.
    """
    [leaf1, *_] = rack.leaves
    agent, interface = rack.agent, f"mlx5_{FLOODED}"
    said, before = (
        len(agent.log.read_text()),
        agent.metrics().value("process_resident_memory_bytes") or 0,
    )
    for start in range(0, FRAMES, AT_ONCE):
        leaf1.send(f"swp{FLOODED}", *map(hostile, range(start, start + AT_ONCE)))
        time.sleep(PAUSE)
    during = agent.metrics()
    assert during.value("bwagent_neighbors", interface=interface) == 32
    assert [labels["device"] for labels in rack.told(FLOODED) if labels["selected"] == "true"] == [
        "leaf1"
    ]
    assert len(rack.told(FLOODED)) <= 32
    assert (during.value("process_resident_memory_bytes") or 0) - before < MAY_GROW
    during.lint()
    leaf1.rename("leaf-1")
    for number, port in (
        (FLOODED, f"swp{FLOODED}"),
        (STAYS, f"swp{STAYS}"),
        (MOVED, f"swp{MOVED}"),
    ):
        rack.until(number, "leaf-1", port)
    lines = agent.log.read_text()[said:].splitlines()
    assert len([line for line in lines if f"eth{FLOODED}" in line]) <= 10
    assert max(map(len, lines)) < 1000
    leaf1.rename("leaf1")
    rack.until(STAYS, "leaf1", f"swp{STAYS}")


def hostile(number: int) -> bytes:
    """Return a frame of an unknown neighbor, as long as possible, or truncated."""
    source = f"02ff{number:08x}"
    name = f"evil-{number}\n\x1b[31m\u202e".encode() + b"\0\xff" * 100
    lldpdu = (
        identity(b"\x04" + bytes.fromhex(source), b"\x07" + name, 65535)
        + tlv(5, name)
        + capabilities(4)
    )
    frame = ethernet(lldpdu + tlv(127, bytes(500)) + tlv(127, bytes(300)) + END, source=source)
    return frame[: 20 + number % 200] if number % 5 == 0 else frame


@pytest.mark.parametrize(
    ("number", "why"), [(GOODBYE, "shutdown"), (SILENT, "expired"), (PULLED, "link-down")]
)
def test_a_neighbor_expires_after_its_grace(rack: Rack, number: int, why: str) -> None:
    """A shutdown frame, an expired TTL and a link that is down take effect 30 seconds later, and
    not before.
    """
    key = re.escape(f"{P}/neighbors.current.mlx5_{number}.device")
    line = rf"(\S+) info label removed key={key} from=leaf\d reason={why}"
    rack.agent.until(lambda: re.search(line, rack.agent.log.read_text()), limit=3 * GRACE)
    [at] = re.findall(line, rack.agent.log.read_text())
    assert datetime.fromisoformat(at).timestamp() - rack.departed >= GRACE
    assert (rack.far_end(number), rack.missing(number)) == ((None, None), [why])
    assert rack.far_end(STAYS) == ("leaf1", f"swp{STAYS}")
