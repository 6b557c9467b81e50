"""Host.modules of a live node: the helper's verb `modules` (agent/helper/main.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.text import Json

TIMEOUT = 10.0  # seconds for the helper, beside LIMIT for each module
LIMIT = 5.0  # seconds: four pages by i2c take tenths of one


def by_helper(call: Callable[[str, Json, float], Json], netdevs: Sequence[str]) -> Json:
    """Return the answer of a helper process, which `call` starts: verb, payload, seconds."""
    return call("modules", {"netdevs": [*netdevs]}, TIMEOUT + LIMIT * len(netdevs))
