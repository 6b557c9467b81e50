"""The topology of Kueue, decoded by Kueue's own types."""

from __future__ import annotations

import pytest
import yaml

from agent.fleet.exports.levels import kueue
from agent.fleet.model import Fleet
from tests.support import kueue as judge
from tests.support.real_parts import require
from tests.support.wired_fleets import NAMING, flat, mixed, tall, tiered


@pytest.mark.parametrize("found", [flat(), tall(), mixed(), tiered()])
def test_kueues_own_types_decode_it(found: Fleet) -> None:
    """Kueue's API types decode the manifests strictly: no field is unknown or repeated."""
    require(judge.missing())
    text = kueue(found, NAMING).text
    assert judge.decode(text) == [
        f"{one['kind']} {one['metadata']['name']}" for one in yaml.safe_load_all(text)
    ]


def test_the_decoder_is_strict() -> None:
    """The judge refuses a field that Kueue does not have."""
    require(judge.missing())
    with pytest.raises(judge.DecodeError, match="nodeLabl"):
        judge.decode(kueue(flat(), NAMING).text.replace("nodeLabel:", "nodeLabl:"))
