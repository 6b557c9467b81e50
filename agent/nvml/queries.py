"""Host.gpus of a live node: queries NVML by the helper's verb `nvml` (agent/helper/main.py).

NVML is not loaded into the agent: held open it blocks driver upgrades, and its calls may hang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.helper.forkserver import ForkServer

VERB = "nvml"
TIMEOUT = 30.0  # seconds; initialization is slow if no process keeps the driver loaded
LIBRARY = "nvml_library"  # the option --nvml-library


def by_helper(
    call: Callable[[str, dict[str, Any], float], dict[str, Any]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of a Host that start one helper process for each query."""
    payload = _payload(options)
    return {"gpus": lambda: call(VERB, payload, TIMEOUT)}


def by_fork_server(
    start: Callable[[str, float], ForkServer], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of a Host that query by a fork server, for a daemon."""
    server, payload = start(VERB, TIMEOUT), _payload(options)

    def query() -> dict[str, Any]:
        answer = server.call(payload)
        if answer.get("library") is None:
            # The dynamic loader never again searches a folder that did not exist.
            server.stop()
        return answer

    return {"gpus": query}


def _payload(options: Mapping[str, Any]) -> dict[str, Any]:
    library = options.get(LIBRARY)
    return {"library": library} if library else {}
