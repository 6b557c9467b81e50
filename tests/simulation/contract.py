"""The label contract as the oracle knows it: what a node's true state allows each label. Nothing is
the agent's.

Where it leaves something open, or nobody can have noticed yet, more than one outcome is right;
which is said here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.simulation.hearing import GRACE, Hearing
from tests.simulation.names import label, natural
from tests.simulation.node import GONE, HERE, LENT, UNBOUND, ZERO
from tests.simulation.outcome import (
    ABSENT,
    AWAY,
    FAILED,
    NONE,
    NOTHING,
    SUM,
    Outcome,
    joined,
    seen,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tests.simulation.names import Value, Values
    from tests.simulation.node import Hca, Node

ASKED = 20.0  # seconds until a switch must have been asked by SMPs after its port has come up
UNTOLD = 310.0  # seconds until it is noticed that a port can be seen again
# Seconds after which a device that is hidden may, and after which it must, count as absent.
MAY_BE_GIVEN_UP, GIVEN_UP = 600.0, 600.0 + UNTOLD
NO_GBPS: Values = frozenset(
    {"0"}
)  # what a port counts that is down, gone, or was hidden for too long
AGAIN = 1.2 * 3600.0  # seconds after which a switch that nothing is heard of was asked again
RETRIED = 40.0  # and at the latest so long after trouble with that, and as long as the trouble took


class Truth:
    """What a node's state means for its labels; told whenever something has changed."""

    def __init__(self, node: Node, hearing: Hearing) -> None:
        self._node, self._hearing = node, hearing
        self._down: dict[str, float] = {}  # by PCI address
        self._asked_by: dict[str, float] = {}  # when the switch must have been asked
        self._hidden_lately: set[str] = set()
        self._peers: dict[str, Value] = {}  # of InfiniBand ports: who was there
        self._renamed: dict[
            str, tuple[Values, float]
        ] = {}  # whom they may be taken for, and until when
        self._blurred: dict[
            str, float
        ] = {}  # ports that went down unsaid: until when nobody knows how long they were
        self._unknown: set[str] = set()  # functions without a driver of which the Node said nothing
        self._certain = True  # the agent knows what each port counted last
        self._hidden_since: dict[str, float] = {}  # by PCI address
        self._unread_boot = False  # it will, once it can read which boot this is
        self._whole_since: float | None = None  # since when everything can be seen
        self._promoted = (
            False  # the front end was all there was, and not everything has been seen since
        )
        self._last: Values = NOTHING  # what the GPUs said when they could be asked
        self._trouble: dict[
            str, tuple[float, float]
        ] = {}  # with asking a switch: since, and when it is over

    def outcomes(self, now: float) -> dict[str, Outcome]:
        """By unit."""
        self._note(now)
        self._note_certainty(now)
        self._note_hidden(now)
        neighbors = {hca.name: self._neighbor(hca, now) for hca in self._node.hcas}
        present = [
            hca for hca in self._node.hcas if hca.where != GONE and hca.pci not in self._unknown
        ]
        gone = _gone(sure=not self._node.unseen)
        found = {f"neighbor {name}": gone for name in self._node.names} | {
            f"neighbor {name}": outcome for name, outcome in neighbors.items()
        }
        found |= {
            "flavor": self._flavor(present, now),
            "speed": self._speed(present),
            "accelerator": self._accelerator(),
        }
        if front := self._node.front:
            seen_all = not self._hidden(present) and not any(hca.murky for hca in present)
            self._promoted = not present or (self._promoted and not seen_all)
            found[f"neighbor {front.name}"] = (
                self._front(front, now) if self._promoted else _gone(sure=seen_all)
            )
        if self._node.infiniband:
            shown = sorted(present, key=lambda hca: natural(hca.name))
            outcomes = [self._unless_given_up(hca, neighbors[hca.name], now) for hca in shown]
            found["leaves"] = joined(outcomes, 0, distinct=True)
            found["ports"] = joined(outcomes, 1, distinct=False)
        return found

    def next_change(self, now: float) -> float:
        """When an outcome changes by itself."""
        moments = [since + GRACE for since in self._down.values()] + [*self._asked_by.values()]
        moments += [*self._blurred.values()]
        moments += [since + MAY_BE_GIVEN_UP for since in self._hidden_since.values()]
        moments += [since + GIVEN_UP for since in self._hidden_since.values()]
        moments += [] if self._whole_since is None else [self._whole_since + UNTOLD]
        moments += [until for _, until in (*self._trouble.values(), *self._renamed.values())]
        return min(
            [self._hearing.next_change(now), *(moment for moment in moments if moment > now)]
        )

    def _note(self, now: float) -> None:
        for hca in self._node.hcas:
            if hca.where in (HERE, LENT):
                self._note_link(hca, now)
            else:
                self._asked_by.pop(hca.pci, None)
            if hca.where == HERE:
                self._unknown.discard(hca.pci)
            if hca.infiniband:
                self._note_trouble(hca, now)
                self._note_name(hca, now)
            elif hca.netdev and hca.where == HERE:
                self._hearing.link(hca.netdev, now, up=hca.up)
            if hca.netdev and (self._node.unseen or hca.sick or hca.murky or hca.where != HERE):
                self._hearing.forget(hca.netdev)
        others = any(hca.where != GONE and hca.pci not in self._unknown for hca in self._node.hcas)
        if self._node.front and self._node.front.netdev and others:
            self._hearing.forget(self._node.front.netdev)

    def _note_link(self, hca: Hca, now: float) -> None:
        if hca.sick or self._node.unseen:
            self._asked_by.pop(hca.pci, None)
            self._hidden_lately.add(hca.pci)
        elif hca.up and hca.pci not in self._asked_by:
            self._asked_by[hca.pci] = (
                now + ASKED + (UNTOLD if hca.pci in self._hidden_lately else 0.0)
            )
            self._hidden_lately.discard(hca.pci)
        elif not hca.up:
            self._asked_by.pop(hca.pci, None)
        if hca.up:
            self._down.pop(hca.pci, None)
        else:
            self._down.setdefault(hca.pci, now)

    def _note_trouble(self, hca: Hca, now: float) -> None:
        since, until = self._trouble.get(hca.pci, (now, 0.0))
        if hca.silent or self._node.smp_trouble:
            self._trouble[hca.pci] = (now if until <= now else since, math.inf)
        elif until == math.inf:
            self._trouble[hca.pci] = (since, now + (now - since) + RETRIED)

    def _note_name(self, hca: Hca, now: float) -> None:
        """A switch that was renamed is called as before until it is asked again; at the latest
        after AGAIN.
        """
        name = label((hca.peer.device, hca.peer.port, None))
        was = self._peers.get(hca.pci, name)
        self._peers[hca.pci] = name
        if not hca.up:
            self._renamed.pop(hca.pci, None)
        elif was != name:
            earlier, _ = self._renamed.get(hca.pci, (NOTHING, 0.0))
            self._renamed[hca.pci] = earlier | {was}, now + AGAIN

    def blur(self, until: float) -> None:
        """No wake-up tells of the links that are down now, nor that they come back meanwhile."""
        self._blurred |= {hca.pci: until for hca in self._node.hcas if not hca.up}

    def born(self) -> None:
        """Whoever looks now has not seen when links went down."""
        self._down.clear()

    def begin(self, known: Collection[str], *, certain: bool) -> None:
        """An agent begins, and the Node tells it of these PCI functions; `certain` if also of what
        they counted last.
        """
        self._unknown = {
            hca.pci for hca in self._node.hcas if hca.where == UNBOUND and hca.pci not in known
        }
        self._certain, self._unread_boot = False, certain
        self._whole_since = None
        self._hidden_since.clear()

    def _note_hidden(self, now: float) -> None:
        hidden = [] if self._node.unseen else self._hidden(self._node.hcas)
        self._hidden_since = {hca.pci: self._hidden_since.get(hca.pci, now) for hca in hidden}

    def _unless_given_up(self, hca: Hca, outcome: Outcome, now: float) -> Outcome:
        """What is hidden for too long is not waited for by the labels that join all ports."""
        since = self._hidden_since.get(hca.pci)
        return outcome if since is None or now < since + GIVEN_UP else ABSENT

    def counts(self) -> dict[str, Outcome]:
        """What each port adds to the speed, by its function."""
        found = {hca.pci: self._count(hca) for hca in self._node.hcas}
        if front := self._node.front:
            both = frozenset({"0", str(front.counted)})
            found[front.pci] = Outcome(both if self._promoted else NO_GBPS)
        return found

    def _count(self, hca: Hca) -> Outcome:
        if hca.where == GONE:
            outcome = Outcome(NO_GBPS)
            is_sure = not (self._node.busless or self._node.unseen)
            return outcome if is_sure else outcome.murky(NO_GBPS)
        if hca.where == UNBOUND and hca.pci in self._unknown:
            return Outcome(NO_GBPS)
        if self._node.unseen or hca.sick or hca.where == UNBOUND:
            return Outcome(held=True, later=NO_GBPS)
        outcome = seen(str(hca.counted))
        return outcome.murky(NO_GBPS) if hca.murky else outcome

    def _note_certainty(self, now: float) -> None:
        """Whoever has seen everything for long enough knows what each port counts."""
        if self._unread_boot and not (self._node.bootless or self._node.blind):
            self._certain, self._unread_boot = True, False
        hcas = self._node.hcas
        is_whole = not (self._node.unseen or self._node.busless or self._hidden(hcas))
        if not is_whole or any(hca.murky for hca in hcas):
            self._whole_since = None
        elif self._whole_since is None:
            self._whole_since = now
        elif now >= self._whole_since + UNTOLD:
            self._certain = True

    def _neighbor(self, hca: Hca, now: float) -> Outcome:
        if hca.where == GONE:
            # An empty class beside a function without its driver says nothing of anybody.
            empty = not any(other.shown for other in self._node.all())
            return _gone(sure=not (self._node.busless or self._node.unseen or empty))
        if self._node.unseen or hca.sick or hca.where == UNBOUND:
            return FAILED
        outcome = self._infiniband(hca, now) if hca.infiniband else self._ethernet(hca, now)
        if now < self._blurred.get(hca.pci, 0.0):
            outcome = Outcome(outcome.now | NONE, held=True, later=outcome.later | NONE)
        return outcome.murky() if hca.murky else outcome

    def _front(self, front: Hca, now: float) -> Outcome:
        """All others are truly gone, so it is all there is."""
        outcome = self._neighbor(front, now)
        hidden = any(
            hca.where != GONE for hca in self._node.hcas
        )  # those that came back, sick: it is what it was
        if hidden:
            return Outcome(outcome.now | NONE, held=True, later=outcome.later | NONE)
        return outcome.murky() if self._node.busless else outcome

    def _infiniband(self, hca: Hca, now: float) -> Outcome:
        if not hca.up and now < self._trouble.get(hca.pci, (0.0, 0.0))[1]:
            return ABSENT.murky()  # whoever cannot ask at all says nothing of any port
        if not hca.up:
            return Outcome(held=True) if now < self._down.get(hca.pci, now) + GRACE else ABSENT
        peer = hca.peer
        before, until = self._renamed.get(hca.pci, (NOTHING, 0.0))
        outcome = seen(label((peer.device, peer.port, None)), *(before if now < until else ()))
        if now < self._trouble.get(hca.pci, (0.0, 0.0))[1] or hca.silent or self._node.smp_trouble:
            return outcome.murky()
        return outcome.murky(NOTHING) if now < self._asked_by.get(hca.pci, math.inf) else outcome

    def _ethernet(self, hca: Hca, now: float) -> Outcome:
        if hca.where == LENT or hca.netdev is None:
            return AWAY
        may_be, unknown = self._hearing.neighbors(hca.netdev, now)
        if not may_be and unknown and self._hearing.ear(hca.netdev).doubted:
            return Outcome(NONE, held=True, later=NONE)
        if not may_be:
            return FAILED if unknown else ABSENT
        nobody = {None} if unknown and self._hearing.ear(hca.netdev).doubted else set()
        outcome = seen(*map(label, may_be), *nobody)
        return outcome.murky() if unknown else outcome

    def _hidden(self, hcas: Iterable[Hca]) -> list[Hca]:
        return [hca for hca in hcas if hca.sick or hca.where == UNBOUND]

    def _flavor(self, hcas: list[Hca], now: float) -> Outcome:
        front = frozenset({"roce"}) if self._node.front else NOTHING
        if not hcas:
            return (
                Outcome(front or NONE, held=bool(self._node.busless))
                if not self._node.unseen
                else FAILED
            )
        word = "infiniband" if self._node.infiniband else "roce"
        hidden = self._hidden(hcas)
        if self._node.unseen:
            return FAILED
        if len(hidden) == len(hcas):
            since = [self._hidden_since.get(hca.pci, now) for hca in hidden]
            gone = NONE if now >= max(since) + MAY_BE_GIVEN_UP else NOTHING
            return Outcome(gone, held=True, later=NONE | (front if self._promoted else NOTHING))
        if any(hca.murky for hca in hcas):
            return seen(word).murky(frozenset({word, None}))
        if hidden and not self._node.infiniband:
            return Outcome(held=True, later=frozenset({word}))
        return seen(word)

    def _speed(self, hcas: list[Hca]) -> Outcome:
        if self._node.unseen or (self._node.busless and not self._node.all()):
            return FAILED
        ports = seen(SUM)
        if self._node.busless and len(hcas) < len(self._node.hcas):
            return ports.murky(frozenset({SUM}))
        hidden = self._hidden(hcas)
        if hcas and len(hidden) == len(hcas):
            # The class may look as if nobody could be looked into.
            return ports.murky(frozenset({SUM, None}))
        doubtful = hidden or any(hca.murky for hca in hcas)
        return ports.murky(frozenset({SUM})) if doubtful and not self._certain else ports

    def _accelerator(self) -> Outcome:
        if (
            self._node.blind or self._node.busless
        ):  # and nobody asks; the last answer may come to honour again
            return (Outcome(self._last) if self._last else FAILED).murky()
        found = self._gpus()
        self._last = found.now or self._last
        return found

    def _gpus(self) -> Outcome:
        gpus = self._node.gpus
        if not gpus.count:
            return ABSENT
        if gpus.unloaded or gpus.unreachable:
            return FAILED
        if gpus.state in (1, 2):
            return FAILED
        nowhere = (
            gpus.state == 0 or gpus.status or gpus.cluster == ZERO or (gpus.odd and gpus.count > 1)
        )
        return ABSENT if nowhere else seen(gpus.identity)


def _gone(*, sure: bool) -> Outcome:
    return ABSENT if sure else ABSENT.murky()
