"""The outcome of a true state for one label at one moment. Shares no code with the agent.

seen     `now` has its value (several, where the contract permits a choice), or None if there
         is truly none
failed   `held`: the published value stays for a hold (`endless`: forever); `later` is right
         after that
murky    both: some of it can be read and some cannot, and either result is right
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from tests.simulation.names import encode, natural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.names import Value, Values

SUM = "the sum of what the ports count"  # stands for it among the values of the speed
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


def joined(outcomes: list[Outcome], part: int, *, distinct: bool) -> Outcome:
    """Return the outcome of `leaves.current` or `ports.current` from those of all neighbors."""
    certain = all(not outcome.held for outcome in outcomes)
    if prod(len(outcome.now) + 1 for outcome in outcomes) > MAX_PRODUCT:
        return ANYTHING
    choices = [_choices(outcome, part) for outcome in outcomes]
    joins = frozenset(_join(chosen, distinct=distinct) for chosen in product(*choices))
    if certain:
        return Outcome(joins)
    full = [_seen(outcome, part) or [None] for outcome in outcomes]
    whole = {_join(chosen, distinct=distinct) for chosen in product(*full)}
    visible = all(outcome.now for outcome in outcomes)
    return Outcome(frozenset(whole) if visible else NOTHING, held=True, later=joins | NONE)


def grouped(parts: list[frozenset[str | None]], *, certain: bool) -> Outcome:
    """Return the outcome of `leafgroup.current` from the last leaves that each port may have."""
    if prod(map(len, parts)) > MAX_PRODUCT:
        return ANYTHING
    found = Outcome(frozenset(_join(chosen, distinct=True) for chosen in product(*parts)))
    return found if certain else found.murky(found.now)


def _choices(outcome: Outcome, part: int) -> list[str | None]:
    """Return the parts that a port may add; raw names in the simulation need no encoding."""
    found = _seen(outcome, part)
    return [*found, None] if outcome.held or not found else found


def _seen(outcome: Outcome, part: int) -> list[str | None]:
    """Return the parts that a port adds when it is seen."""
    return [value[part] if isinstance(value, tuple) else None for value in outcome.now]


def _join(parts: Sequence[str | None], *, distinct: bool) -> str | None:
    names = [part for part in parts if part]
    names = sorted(set(names), key=natural) if distinct else names
    return encode("_".join(names)) if names else None
