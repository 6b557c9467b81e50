"""What the sources remember from one observation to the next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.infiniband.switch_names import SwitchNames
from agent.sysfs.bus import BusMemory
from agent.sysfs.front_end import NodeFacts

if TYPE_CHECKING:
    from agent.infiniband.fabric_memory import FabricMemory
    from agent.sources.steady import RoleMemory


@dataclass(slots=True)
class Memories:
    """The memories of one agent; an observation that stands alone begins with empty ones."""

    bus: BusMemory = field(default_factory=BusMemory)  # the PCI functions
    node: NodeFacts = field(default_factory=NodeFacts)
    switch_names: SwitchNames = field(default_factory=SwitchNames)  # by earlier answers to SMPs
    roles: RoleMemory | None = None  # None: each observation decides by itself
    fabric: FabricMemory | None = None  # the switches above; None: --tiers is off
    wall: Callable[[], float] = time.time  # seconds since the epoch
    # about them, by outcome (agent/infiniband/exploration.py)
    sa_questions: Counter[str] = field(default_factory=Counter)
