"""When to look, and when to speak: events, results and the clock in, what is due out.

The law of this module: reasons are cheap and may come in storms; a look costs milliseconds and a request is felt by an
API server that has ten thousand agents. So

    a reason        is followed by a look at once and by another 100 ms later, for the kernel tells some things twice
                    and late; in a storm there is a look each second
    no reason       by a look every five minutes, since a reason may be lost, or when something runs out by itself
    a change        by a request at once, and the next one `min_interval` later at the earliest, with the latest state
    no change       by a request about once in `resync`, at a random moment, which refreshes the annotation, repairs
                    what others did to the Node, and is the only one of an agent whose node is well
    a failure       by another try after a time that doubles, is half random, has an end, and is never less than the
                    server asked for
    a refusal       of a key or a family by a minute without it, since the policy that allows it may be on its way, and
                    where it is refused again then by an hour

Nothing is due twice, and nothing that was asked for is forgotten: what is wanted while a request is under way is
compared with what that request has said.

Pure: the time is told, in seconds of a clock that never jumps; chance is a door.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

ECHO = 0.1  # seconds after which a reason is looked into once more
STORM = 1.0  # seconds between two looks that reasons ask for
LOOK = 300.0  # seconds between two looks that nobody asks for
UNEASY = 30.0  # the same while something that was seen before cannot be seen
FIRST_RETRY, LONGEST_RETRY = 2.0, 300.0  # seconds
REFUSED_ONCE, REFUSED = (
    60.0,
    3600.0,
)  # seconds that a key is left in peace that was refused once, or again
SOON = 60.0  # seconds within which an annotation is refreshed that is too old already


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator decides; seconds."""

    hold: float = 600.0
    min_interval: float = 10.0
    resync: float = 3600.0


class Step(NamedTuple):
    """What is due now, or for how many seconds nothing is."""

    wait: float
    look: bool = False
    speak: bool = False  # to the API server
    resync: bool = False  # the request is the one that comes without a change


class Schedule:
    """The agent's sense of time."""

    def __init__(self, settings: Settings, now: float, random: Callable[[], float]) -> None:
        self._settings = settings
        self._random = random
        self._look = now  # when the next one is due
        self._until = math.inf  # when something runs out by itself
        self._echo = math.inf
        self._looked = -math.inf
        self._stirred = True  # there was a reason since the last look
        self._speak = now  # the earliest moment for the next request
        self._resync = math.inf
        self._seeded = self._speaking = False
        self._failures = 0
        self._wanted: Hashable = None
        self._said: Hashable = None  # None: we do not know what the Node says
        self._refused: dict[str, float] = {}

    def stir(self, now: float) -> None:
        """There is a reason to look."""
        self._stirred = True
        self._look = min(self._look, max(now, self._looked + STORM))

    def looked(self, now: float, until: float = math.inf, *, uneasy: bool = False) -> None:
        """A look was made. `until`: when something that was seen runs out; `uneasy`: something could not be seen."""
        echo, self._echo = self._echo, math.inf
        self._looked = now
        # What has run out and is still there must not make the loop spin.
        self._until = max(until, now + STORM)
        if self._stirred and now >= echo:
            return  # what came since the look that this one echoes gets a look and an echo of its own
        if self._stirred:
            self._echo = now + ECHO
        self._stirred = False
        self._look = now + (UNEASY if uneasy else LOOK)

    def put_off(self, now: float, until: float) -> None:
        """What was seen has been renewed, and runs out no earlier than `until`; what is due by now stays due."""
        if now < self._until:
            self._until = max(until, self._looked + STORM)

    def seeded(self, now: float, age: float) -> None:
        """The Node was looked at; its annotation is `age` seconds old."""
        self._seeded, self._speaking, self._failures = True, False, 0
        self._speak = now
        self._resync = now + self._random() * max(
            self._settings.resync - max(age, 0.0), self._soon()
        )
        self._stirred, self._look = True, now

    def want(self, state: Hashable) -> None:
        """What the Node should say, as the last look has it; never None."""
        self._wanted = state

    def speaking(self, now: float) -> None:
        """A request is under way."""
        self._speaking = True
        self._speak = now + self._settings.min_interval

    def accepted(
        self, now: float, said: Hashable, refused: Iterable[str] = (), *, requests: int = 1
    ) -> None:
        """The Node says `said` now, but for what was refused; without a request where it had said so already."""
        gathered, self._speaking, self._failures = self._failures > 0, False, 0
        self._said = said
        until = {key: now + (REFUSED if key in self._refused else REFUSED_ONCE) for key in refused}
        self._refused = {key: end for key, end in self._refused.items() if end > now} | until
        if not requests:
            self._speak = now
        elif now >= self._resync - self._soon():
            # An earlier one leaves it where it is: those that were told the same moment would meet again each hour.
            # So would those that an outage has gathered.
            share = self._random() if gathered else 0.9 + 0.2 * self._random()
            self._resync = now + self._settings.resync * share

    def failed(self, now: float, retry_after: float | None = None) -> None:
        """It came to nothing, and who knows what the Node says now."""
        self._speaking = False
        self._said = None
        delay = min(FIRST_RETRY * 2.0 ** min(self._failures, 16), LONGEST_RETRY) * (
            0.5 + 0.5 * self._random()
        )
        self._failures += 1
        # They were all told the same moment: some come a little later.
        asked = 0.0 if retry_after is None else retry_after * (1 + 0.25 * self._random())
        self._speak = max(self._speak, now + max(delay, asked))

    def resync(self, now: float) -> None:
        """Time has passed that was not ours, or something was missed: look, and tell the Node again before long."""
        self.stir(now)
        self._resync = min(self._resync, now + self._soon() * self._random())

    def backed_off(self, now: float) -> frozenset[str]:
        """The keys and families that were refused, and are left in peace."""
        return frozenset(key for key, until in self._refused.items() if until > now)

    def step(self, now: float) -> Step:
        """What is due at `now`."""
        following = min(self._look, self._until, self._echo)
        look = now >= following
        speak, due = self._speech(now)
        if look or speak:
            return Step(0.0, look, speak, resync=speak and now >= self._resync)
        return Step(max(min(following, due) - now, 0.0))

    def _soon(self) -> float:
        return min(SOON, self._settings.resync)

    def _speech(self, now: float) -> tuple[bool, float]:
        """Whether a request is due, and else when one will be."""
        if self._speaking or (self._seeded and self._wanted is None):
            return False, math.inf
        unsaid = self._said is None or self._wanted != self._said
        again = min(self._refused.values(), default=math.inf)
        due = max(self._speak, -math.inf if unsaid else min(self._resync, again))
        return now >= due, due
