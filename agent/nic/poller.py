"""Host.ask_nics of a live node: the helper's verb `nics` (agent/helper/main.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.errors import Unavailable
from agent.text import Json

VERB = "nics"
TIMEOUT = 20.0  # seconds for one helper process


def by_helper(call: Callable[[str, Json, float], Json]) -> Callable[[Sequence[str]], Json]:
    """Return a query that starts a helper process.

    Where firmware holds up the requests, another one asks for the health reporters alone.
    """

    def ask(netdevs: Sequence[str]) -> Json:
        payload: Json = {"netdevs": [*netdevs]}
        try:
            return call(VERB, payload, TIMEOUT)
        except Unavailable as error:
            answer = call(VERB, payload | {"quick": True}, TIMEOUT)
            return answer | {"errors": [*answer["errors"], ["link states, firmware", str(error)]]}

    return ask


def health_by_helper(call: Callable[[str, Json, float], Json]) -> Callable[[Sequence[str]], Json]:
    """Return a query of the health reporters alone, as the daemon asks."""
    return lambda _netdevs: call(VERB, {"netdevs": [], "quick": True}, TIMEOUT)
