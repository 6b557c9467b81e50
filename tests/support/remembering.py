"""Observations completed by an agent's memory, which starts from labels and an annotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.kube.annotation import Annotation
from agent.kube.managed_fields import Keys
from agent.kube.remembered import published
from agent.memory import Fact, Known, Memory, known_of
from agent.model import Observation
from agent.sources.pci import Place
from agent.text import natural
from tests.support.nodes import BOOT, KEYS

HOLD = 600.0


def alone(found: Observation) -> tuple[Observation, Known]:
    """Return an observation that stands alone, with what is known by it."""
    return found, known_of(found)


def completed(  # noqa: PLR0913 - what a new agent finds
    found: Observation,
    labels: Mapping[str, str] | None = None,
    annotation: Annotation | None = None,
    place: Place = Place.GONE,
    *,
    keys: Keys = KEYS,
    before: float = 60.0,
) -> tuple[Observation, Known]:
    """Return the second observation of an agent that finds these on the Node, equal to the first.

    `place` is that of every function without device; it started `before` seconds ago.
    """
    memory = Memory(HOLD)
    memory.seed(published(annotation, labels or {}, keys, BOOT), 120.0 - before)
    for now in (120.0 - before, 120.0):
        seen = memory.complete(found, lambda _address: place, now)
    return seen


def knowing(
    found: Observation, *unread: Fact, lost: tuple[Fact, ...] = (), **changes: Any
) -> tuple[Observation, Known]:
    """Return an observation, and what is known after it: these rows, too."""
    known = known_of(found)
    facts = tuple(sorted((*known.facts, *unread), key=lambda fact: natural(fact.interface)))
    return found, known._replace(facts=facts, lost=lost, is_seeded=True, **changes)
