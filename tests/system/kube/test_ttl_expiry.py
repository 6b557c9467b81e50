"""Expiry of the neighbors that were removed from the RoCE node of tests/support/kube/rack.py."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from tests.support.kube.rack import GOODBYE, PULLED, SILENT, STAYS
from tests.support.kube.resident import P

if TYPE_CHECKING:
    from tests.support.kube.rack import Rack

GRACE = 30.0  # seconds


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
