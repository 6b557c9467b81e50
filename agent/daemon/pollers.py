"""Whom it costs something to ask, asked now and then: the doors to NVML and to SMPs, with a memory.

The law of this module: a look is for free and may come at any time, a child process is not. So a look finds the last
answer behind these doors and never waits for one; the loop sees to it that there are new ones (`start_due`, `collect`).
What a look did not ask about is not asked about: a node without GPUs starts no child, a port that is down sends no
packet, and when it is up again nothing is known of it.

NVML has its pace (agent/nvml/domain.py). SMPs have reasons: a port that is new or has come up, a link event, the hour.
Who does not answer (an M_Key keeps its switch silent) is asked again later and later, until a reason comes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from agent.daemon.background import BackgroundTask
from agent.errors import Unavailable
from agent.nvml.domain import SLOW, Pace, Verdict, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.model import Observation

    Answer = dict[str, Any]
    Address = tuple[str, int]

GAP = 5.0  # seconds between two questions to one port, whatever the reasons
FIRST_RETRY, LONGEST_RETRY = 10.0, 4 * 3600.0  # seconds
BROKEN = 300.0  # seconds between two tries where nobody could be asked at all: that says nothing of the switch
AGAIN = 3600.0  # seconds after which a switch is asked again that nothing was heard of: it may have been renamed
NOT_YET = "not asked yet"


class Poller(Protocol):
    """A source that a helper process polls; an observation reads the cached result.

    The loop calls `begin_cycle` before an observation and `observed` after it, `start_due` and
    `collect` once a turn. Times are seconds of the loop's clock.
    """

    source: ClassVar[str]  # name of the source (agent/sources/observe.py)

    @property
    def busy(self) -> bool:
        """True while a poll is under way."""

    @property
    def took(self) -> float:
        """Duration of the last poll in seconds."""

    def begin_cycle(self) -> None:
        """Forget which queries the previous observation needed."""

    def observed(self, observation: Observation) -> None:
        """Choose the next poll's time by what was observed."""

    def trigger(self, now: float) -> None:
        """Poll early: an event happened."""

    def start_due(self, now: float) -> None:
        """Start a poll if one is due."""

    def collect(self, now: float) -> bool:
        """Take a finished poll's result; True if an observation should read it."""

    def next_due(self) -> float:
        """Time at which `start_due` has something to start; infinity if none is needed."""


class NvmlPoller:
    """The door to NVML: `ask` takes its time or raises Unavailable, calling this does neither but the latter."""

    source: ClassVar[str] = "nvml"

    def __init__(
        self,
        ask: Callable[[], Answer],
        interval: float = SLOW,
        aside: BackgroundTask[Answer] | None = None,
    ) -> None:
        self.aside = aside or BackgroundTask()
        self._ask = ask
        self._pace = Pace(interval=interval)
        self._answer: Answer | Exception = Unavailable(f"NVML was {NOT_YET}")
        self._verdict = Verdict(None, "failed")
        self._wanted = False  # the last look came by
        self._answered: float | None = None  # when the answer came that no look has seen

    def __call__(self) -> Answer:
        self._wanted = True
        if isinstance(self._answer, Exception):
            raise Unavailable(str(self._answer))
        return self._answer

    @property
    def busy(self) -> bool:
        return self.aside.busy

    @property
    def took(self) -> float:
        return self.aside.took

    def begin_cycle(self) -> None:
        self._wanted = False

    def observed(self, observation: Observation) -> None:
        self.judged(verdict(observation.nvml))

    def trigger(self, now: float) -> None:
        """Keep the pace: no event says anything about GPUs."""

    def judged(self, found: Verdict) -> None:
        """What a look made of the answer."""
        self._verdict = found
        if self._answered is not None:
            self._pace, self._answered = self._pace.after(found, self._answered), None

    def start_due(self, now: float) -> None:
        if self.next_due() <= now:
            self.aside.start(self._ask)

    def collect(self, now: float) -> bool:
        answer = self.aside.take()
        if answer is None:
            return False
        same = _alike(answer, self._answer)
        self._answer, self._answered = answer, now
        if same:
            self.judged(self._verdict)
        return not same

    def next_due(self) -> float:
        idle = self._wanted and not self.aside.busy and self._answered is None
        return self._pace.due if idle else math.inf


def _alike(one: Answer | Exception, other: Answer | Exception) -> bool:
    if isinstance(one, Exception) or isinstance(other, Exception):
        return type(one) is type(other) and str(one) == str(other)
    return one == other


@dataclass(slots=True)
class _Port:
    """What is known of one port's far end."""

    answer: Answer
    due: float = -math.inf
    asked: float = -math.inf
    tries: int = 0


class SmpPoller:
    """The door to SMPs: `ask` takes its time or raises Unavailable; see Host.ask_smp for what both give."""

    source: ClassVar[str] = "ib"

    def __init__(
        self,
        ask: Callable[[Sequence[Address]], Answer],
        aside: BackgroundTask[Answer] | None = None,
    ) -> None:
        self.aside = aside or BackgroundTask()
        self._ask = ask
        self._ports: dict[Address, _Port] = {}
        self._before: dict[Address, _Port] = {}  # as the look before had it
        self._asked: list[Address] = []
        self._failure: str | None = None  # why the last question came to nothing

    def __call__(self, addresses: Sequence[Address]) -> Answer:
        self._ports = {
            address: self._before.get(address) or _Port(_nothing(address)) for address in addresses
        }
        if self._failure:
            raise Unavailable(self._failure)
        return {"ports": [port.answer for port in self._ports.values()]}

    @property
    def busy(self) -> bool:
        return self.aside.busy

    @property
    def took(self) -> float:
        return self.aside.took

    def begin_cycle(self) -> None:
        self._before, self._ports = self._ports, {}

    def observed(self, observation: Observation) -> None:
        """Keep the times: they depend on the answers alone."""

    def trigger(self, now: float) -> None:
        for port in self._ports.values():
            port.due, port.tries = min(port.due, max(now, port.asked + GAP)), 0

    def start_due(self, now: float) -> None:
        if self.next_due() > now:
            return
        self._asked = sorted(address for address, port in self._ports.items() if port.due <= now)
        asked = tuple(self._asked)
        for address in asked:
            self._ports[address].asked = now
        self.aside.start(lambda: self._ask(asked))

    def collect(self, now: float) -> bool:
        answer = self.aside.take()
        if answer is None:
            return False
        answers = _by_address(answer)
        self._failure = str(answers) if isinstance(answers, Exception) else None
        for address in self._asked:
            if port := self._ports.get(address):
                _take(port, None if isinstance(answers, Exception) else answers.get(address), now)
        return True

    def next_due(self) -> float:
        return (
            math.inf
            if self.aside.busy
            else min((port.due for port in self._ports.values()), default=math.inf)
        )


def _nothing(address: Address) -> Answer:
    device, port = address
    return {"device": device, "port": port, "exchanges": [], "error": "no-answer", "text": None}


def _by_address(answer: Answer | Exception) -> dict[Address, Answer] | Exception:
    if isinstance(answer, Exception):
        return answer
    try:
        return {(one["device"], one["port"]): one for one in answer["ports"]}
    except (KeyError, TypeError) as error:
        return Unavailable(f"the answer about InfiniBand neighbours makes no sense: {error!r}")


def _take(port: _Port, answer: Answer | None, now: float) -> None:
    """A neighbour stays what it is until there is a reason; no neighbour is worth another try."""
    port.answer = answer or port.answer
    if answer and not answer.get("error"):
        port.due, port.tries = now + AGAIN, 0
        return
    port.due = now + min(
        FIRST_RETRY * 2.0 ** min(port.tries, 16), LONGEST_RETRY if answer else BROKEN
    )
    port.tries += 1
