"""The outcome of a true state for one label at one moment. Shares no code with the agent.

seen     `now` has its value (several, where the contract permits a choice), or None if there
         is truly none
failed   `held`: the published value stays for a hold (`endless`: forever); `later` is right
         after that
murky    both: some of it can be read and some cannot, and either result is right
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tests.simulation.names import Value, Values, encode, natural

SUM = "the sum of what the ports count"  # stands for it among the values of the speed
LAST = "the sum of what the ports counted last"  # while none can be read; none after their holds
JOINED = "the neighbors of the ports, joined"  # so for the leaves and the port IDs
ANY = "any value"  # stands for all: a flood of neighbors leaves too many choices to list them
MAX_PRODUCT = 20_000
NONE: Values = frozenset({None})
NOTHING: Values = frozenset()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The values that may be published."""

    now: Values = NOTHING
    held: bool = False
    later: Values = NOTHING
    endless: bool = False

    def murky(self, later: Values = NONE) -> Outcome:
        """Return the same outcome, where a failed observation is right too."""
        return Outcome(self.now, held=True, later=self.later | later, endless=self.endless)


ABSENT, FAILED, AWAY = (
    Outcome(NONE),
    Outcome(held=True, later=NONE),
    Outcome(held=True, endless=True),
)

ANYTHING = Outcome(frozenset({ANY}), held=True, later=frozenset({ANY}))


def seen(*values: Value) -> Outcome:
    return Outcome(frozenset(values))


def joins(ports: Iterable[Values], part: int, *, distinct: bool) -> Values:
    """Return the values of `leaves.current` or `ports.current` from those of each neighbor.

    Each port adds what is right for it alone, be that the last it had: a port that cannot be read
    keeps no other one from being followed at once.
    """
    found: set[tuple[str, ...]] = {()}
    for values in ports:
        parts = {value[part] if isinstance(value, tuple) else None for value in values}
        found = {_added(before, one, distinct=distinct) for before in found for one in parts}
        if ANY in values or len(found) > MAX_PRODUCT:
            return frozenset({ANY})
    return frozenset(encode("_".join(names)) if names else None for names in found)


def _added(names: tuple[str, ...], name: str | None, *, distinct: bool) -> tuple[str, ...]:
    if not name:
        return names
    return tuple(sorted({*names, name}, key=natural)) if distinct else (*names, name)


def grouped(parts: list[frozenset[str | None]], *, certain: bool) -> Outcome:
    """Return the outcome of `leafgroup.current` from the last leaves that each port may have."""
    if prod(map(len, parts)) > MAX_PRODUCT:
        return ANYTHING
    found = Outcome(frozenset(_join(chosen) for chosen in product(*parts)))
    return found if certain else found.murky(found.now)


def _join(parts: Sequence[str | None]) -> str | None:
    names = sorted({part for part in parts if part}, key=natural)
    return encode("_".join(names)) if names else None
