"""What the sources remember from one observation to the next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.infiniband.switch_names import SwitchNames
from agent.sysfs.bus import BusMemory
from agent.sysfs.front_end import NodeFacts

if TYPE_CHECKING:
    from agent.infiniband.fabric_memory import FabricMemory
    from agent.sources.steady import RoleMemory


class Memories:
    """The memories of one agent; an observation that stands alone begins with empty ones."""

    def __init__(
        self,
        *,
        switch_names: SwitchNames | None = None,
        roles: RoleMemory | None = None,
        fabric: FabricMemory | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.bus = BusMemory()  # the PCI functions
        self.node = NodeFacts()
        self.switch_names = switch_names or SwitchNames()  # by earlier answers to SMPs
        self.roles = roles  # None: each observation decides by itself
        self.fabric = fabric  # the switches above; None: --tiers is off
        self.wall = wall  # seconds since the epoch
        # about them, by outcome (agent/infiniband/exploration.py)
        self.sa_questions = Counter[str]()
