"""Host.gpus of a live node: queries NVML by the helper's verb `nvml` (agent/helper/main.py).

NVML is not loaded into the agent: held open it blocks driver upgrades, and its calls may hang.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.helper.forkserver import ForkServer

    Fields = dict[str, Any]
    Options = Mapping[str, Any]

VERB = "nvml"
TIMEOUT = 30.0  # seconds; initialization is slow if no process keeps the driver loaded
LIBRARY = "nvml_library"  # the option --nvml-library


def by_helper(call: Callable[[str, Fields, float], Fields], options: Options) -> Fields:
    """Return the fields of a Host that start one helper process for each query."""
    payload = _payload(options)
    return {"gpus": lambda: call(VERB, payload, TIMEOUT), **_named(payload)}


def by_fork_server(start: Callable[[str, float], ForkServer], options: Options) -> Fields:
    """Return the fields of a Host that query by a fork server, for a daemon."""
    payload = _payload(options)
    return {"gpus": partial(_query, start(VERB, TIMEOUT), payload), **_named(payload)}


def _query(server: ForkServer, payload: Fields) -> Fields:
    answer = server.call(payload)
    if answer.get("library") is None and "/" not in payload.get("library", ""):
        # The dynamic loader never again searches a folder that did not exist.
        server.stop()
    return answer


def _named(payload: Fields) -> Fields:
    """Return the fields of a Host whose library is named by --nvml-library, or is not."""
    return {"gpus_off_bus": "library" in payload}


def _payload(options: Options) -> Fields:
    library = options.get(LIBRARY)
    return {"library": library} if library else {}
