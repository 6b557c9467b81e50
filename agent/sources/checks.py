"""The checks of `bwagent doctor`, by the data source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from agent.check import Check, Surroundings
from agent.infiniband import checks as ib
from agent.lldp import checks as lldp
from agent.nvml import checks as nvml
from agent.sources import rdma_checks

# Each returns what is there and what is missing.
CHECKS: Mapping[str, Callable[[Surroundings], Iterable[Check]]] = {
    "rdma": rdma_checks.checks,
    "lldp": lldp.checks,
    "ib": ib.checks,
    "nvml": nvml.checks,
}
