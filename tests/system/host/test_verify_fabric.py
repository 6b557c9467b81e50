"""`verify` over a simulated InfiniBand fabric that is cabled otherwise than planned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fabric import Fabric, missing
from tests.support.fabrics import MANAGED
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator

REPO = Path(__file__).parents[3]
HOST = "H-b83fd20300aabb00"
HEADER = "node,interface,device,port-id,port-name"


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Rebuild one NDR switch with the host on its port 3 from a dump of ibnetdiscover."""
    require(missing())
    with Fabric(MANAGED, tmp_path_factory.mktemp("verify")) as found:
        yield found


def verify(fabric: Fabric, folder: Path, *rows: str) -> dict[str, Any]:
    """Return the document of `verify` on the host, with a plan of these rows."""
    plan, tree = folder / "plan.csv", folder / "sys"
    plan.write_text("\n".join([HEADER, *rows, ""]))
    fabric.boot(HOST, tree)
    words = ("--sysfs-root", str(tree), "--plan", str(plan), "--node-name", "node005")
    command = [*fabric.under(HOST), "env", f"PYTHONPATH={REPO}", sys.executable, "-m", "agent.cli"]
    done = subprocess.run(
        [*command, "verify", "-o", "json", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in {0, 1, 3}, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("row", "by"),
    [
        ("L90.1.3,3,", ("exact", "exact")),
        ("l90.1.3,P3,", ("case", "number")),
        ("0xb0cf0e0300d66c80,IB1/2/1,", ("guid", "twin-port")),
        ("MF0;L90.1.3:MQM9700/U1,sw2p1,", ("description", "twin-port")),
    ],
)
def test_as_planned(fabric: Fabric, tmp_path: Path, row: str, by: tuple[str, str]) -> None:
    """By each notation of the switch and of its port; the fabric has no subnet manager."""
    found = verify(fabric, tmp_path, f"node005,ibsim0,{row}")
    assert (found["as_planned"], found["planned"]) == (1, 1)
    assert found["cables"][0]["matched_by"] == {"device": by[0], "port": by[1]}


@pytest.mark.parametrize(
    ("row", "code", "text"),
    [
        (
            "L90.1.3,4,",
            "wrong-port",
            "from port 3 to L90.1.3 port 4; the plan gives port 3 to node006 mlx5_0.",
        ),
        (
            "L90.1.4,3,",
            "miscabled",
            "to L90.1.4 port 3; the plan gives its present port to node006 mlx5_0.",
        ),
    ],
)
def test_wrongly_cabled(fabric: Fabric, tmp_path: Path, row: str, code: str, text: str) -> None:
    """The sentence names the node whose port the cable is in."""
    rows = (f"node005,ibsim0,{row}", "node006,mlx5_0,L90.1.3,3,")
    first, *_ = verify(fabric, tmp_path, *rows)["findings"]
    assert first["code"] == code
    assert first["text"].endswith(text)
