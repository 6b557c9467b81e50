"""What a true state says of one label at one moment, in the contract's three words. Nothing is the
agent's.

seen     `now` has its value (several, where the contract leaves it open), or None, where there
truly is none failed   `held`: whatever was published stays, for a hold (`endless`: without an end);
`later` is right after that murky    both: some of it can be seen and some cannot, and either
reading is right
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from tests.simulation.names import encode, natural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.names import Value, Values

SUM = "the sum of what the ports count"  # stands for it among the values of the speed
NONE: Values = frozenset({None})
NOTHING: Values = frozenset()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What may be published."""

    now: Values = NOTHING
    held: bool = False
    later: Values = NOTHING
    endless: bool = False

    def murky(self, later: Values = NONE) -> Outcome:
        """The same, and it may be that it cannot be seen."""
        return Outcome(self.now, held=True, later=self.later | later, endless=self.endless)


ABSENT, FAILED, AWAY = (
    Outcome(NONE),
    Outcome(held=True, later=NONE),
    Outcome(held=True, endless=True),
)


def seen(*values: Value) -> Outcome:
    return Outcome(frozenset(values))


def joined(outcomes: list[Outcome], part: int, *, distinct: bool) -> Outcome:
    """IB/leaves.current and IB/ports.current out of all neighbours."""
    certain = all(not outcome.held for outcome in outcomes)
    choices = [_choices(outcome, part) for outcome in outcomes]
    joins = frozenset(_join(chosen, distinct=distinct) for chosen in product(*choices))
    if certain:
        return Outcome(joins)
    full: list[list[str | None]] = [[one for one in some if one] or [None] for some in choices]
    whole = {_join(chosen, distinct=distinct) for chosen in product(*full)}
    visible = all(outcome.now for outcome in outcomes)
    return Outcome(frozenset(whole) if visible else NOTHING, held=True, later=joins | NONE)


def _choices(outcome: Outcome, part: int) -> list[str | None]:
    """What a port may add: raw names here have nothing to encode."""
    found = [value[part] if isinstance(value, tuple) else None for value in outcome.now]
    return [*found, None] if outcome.held or not found else found


def _join(parts: Sequence[str | None], *, distinct: bool) -> str | None:
    names = [part for part in parts if part]
    names = sorted(set(names), key=natural) if distinct else names
    return encode("_".join(names)) if names else None
