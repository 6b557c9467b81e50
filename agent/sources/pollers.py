"""The pollers of the daemon, by the data source; the reads of a source without one are cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agent.infiniband import counter_poller, tier_poller
from agent.infiniband import poller as ib
from agent.nvml import poller as nvml

if TYPE_CHECKING:  # it imports this table
    from agent.daemon.background import BackgroundTask, Poller
    from agent.host import Host
    from agent.sources.memories import Memories

    Options = Mapping[str, Any]  # of the command line, by name
    HostFields = dict[str, Any]
    Made = tuple[Poller, HostFields] | None
    Make = Callable[[Host, Memories, Options, BackgroundTask[Any]], Made]

# Each makes a poller, and the fields of a Host that read its cache, from a Host that queries, the
# memories of the observations, the command line options and a background task; or None, where a
# flag is off.
POLLERS: Mapping[str, tuple[Make, ...]] = {
    "ib": (ib.make, ib.make_sa, tier_poller.make, counter_poller.make),
    "nvml": (nvml.make,),
}
