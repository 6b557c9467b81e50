"""The label contract: the values of each label that a node's true state permits. Shares no code
with the agent.

Several outcomes are right where the contract leaves a choice, or while the agent cannot have
noticed a change yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tests.simulation.descriptions import RETRIED, Asked, Descriptions, FarEnd
from tests.simulation.hidden import Hidden
from tests.simulation.last_leaves import LastLeaves
from tests.simulation.links import Downs
from tests.simulation.names import Told, Values, label, natural
from tests.simulation.neighbors import GRACE, Hearing
from tests.simulation.node import GONE, HERE, LENT, UNBOUND, ZERO, Hca, Node
from tests.simulation.outcome import (
    ABSENT,
    AWAY,
    FAILED,
    JOINED,
    LAST,
    NONE,
    NOTHING,
    SUM,
    Outcome,
    seen,
)
from tests.simulation.recent import Recent

ASKED = 20.0  # seconds until a switch must have been queried after its port has come up
ASKED_BY_SA = 3700.0  # the same of the subnet administrator: a link that flaps waits up to an hour
CONFIRM = 60.0  # seconds after which a role is steady, and between two verdicts that change it
UNTOLD = 310.0  # seconds until a port that can be read again must have been noticed
NO_GBPS: Values = frozenset({"0"})  # of a port that is down, gone, or was hidden for too long


class Truth:
    """The permitted values of a node's labels; `outcomes` must be called after every change."""

    def __init__(self, node: Node, hearing: Hearing) -> None:
        self._node, self._hearing = node, hearing
        self._downs = Downs()
        # When the switch must have been asked, by PCI address.
        self._asked_by: dict[str, float] = {}
        self._hidden_lately: set[str] = set()
        # Ports that went down without an event: until when the duration is unknown.
        self._blurred: dict[str, float] = {}
        self._unknown: set[str] = set()  # functions without a driver, not in the annotation
        self._certain = True  # the agent knows what each port counted last
        self._may_be_certain = False  # since everything could be read once
        self._hidden_ones = Hidden()
        self._unread_boot = False  # it will, once it can read which boot this is
        self._whole_since: float | None = None  # since when everything can be read
        # Since when the front end may be the backend: it was all there was, and not everything has
        # been seen since, or not for long enough
        self._promoted_since = math.inf
        self._demoted_by = math.inf  # when it must be none any more
        self._last: Values = NOTHING  # the last answer of the GPUs
        # With querying a switch, by PCI address: since, and when it is over.
        self._trouble: dict[str, tuple[float, float]] = {}
        self._descriptions = Descriptions()
        self._last_leaves = LastLeaves()
        self._recent = Recent()
        self._ends: dict[str, Outcome] = {}
        self._called: dict[str, str] = {}  # the name that may have been read last, by PCI address
        # Links that were down when their state may have been read last: since when, by PCI address
        self._hidden_down: dict[str, float] = {}

    def outcomes(self, now: float, observed_by: float) -> dict[str, Outcome]:
        """Return the outcome of each unit; the agent must have observed it by that time."""
        self._note(now)
        self._note_certainty(now)
        hidden = None if self._node.unseen else {hca.pci for hca in self._hidden(self._node.hcas)}
        self._hidden_ones.note(hidden, now, observed_by)
        neighbors = {hca.name: self._neighbor(hca, now) for hca in self._node.hcas}
        present = [
            hca for hca in self._node.hcas if hca.where != GONE and hca.pci not in self._unknown
        ]
        # A name of before is that of its port as long as nobody can see the new one.
        hidden_names = {
            self._called.get(hca.pci) for hca in self._node.hcas if not self._is_visible(hca)
        }
        never = {f"neighbor {hca.name}": ABSENT for hca in self._node.dropped}
        found = {
            f"neighbor {name}": _gone(sure=not self._node.unseen and name not in hidden_names)
            for name in self._node.names
        } | {f"neighbor {name}": outcome for name, outcome in neighbors.items()}
        found |= {
            "flavor": self._veiled(self._flavor(present, now)),
            "speed": self._veiled(self._speed(present)),
            "accelerator": self._accelerator(),
            **never,
        }
        if front := self._node.front:
            seen_all = not self._hidden(present) and not any(hca.murky for hca in present)
            seen_all &= not self._node.clouded
            self._note_front(now, observed_by, alone=not present, seen_all=seen_all)
            if front.netdev and self._demoted_by == math.inf and (present or self._node.clouded):
                self._hearing.forget(front.netdev)
            found[f"neighbor {front.name}"] = (
                self._front(front, now) if self._promoted else _gone(sure=seen_all)
            )
        known = [hca for hca in self._node.hcas if hca.pci not in self._unknown]
        known.sort(key=lambda hca: natural(hca.name))
        outcomes = [self._hidden_ones.outcome(hca.pci, neighbors[hca.name], now) for hca in known]
        outcomes = [
            self._recent.outcome(hca.pci, outcome, now)
            for hca, outcome in zip(known, outcomes, strict=True)
        ]
        self._ends = dict(zip((hca.pci for hca in known), outcomes, strict=True))
        if self._node.infiniband:
            found["ports"] = self._veiled(seen(JOINED))
        ports = {
            hca.pci: (neighbors[hca.name], hca.where == GONE, hca.up) for hca in self._node.hcas
        }
        if front:
            self._ends[front.pci] = found[f"neighbor {front.name}"] if self._promoted else ABSENT
            may_be_gone = not self._promoted or self._demoted_by < math.inf
            ports[front.pci] = (found[f"neighbor {front.name}"], may_be_gone, front.up)
        found["leaves"] = self._veiled(seen(JOINED))
        self._last_leaves.note(ports, now, observed_by)
        found["group"] = self._last_leaves.outcome(is_clouded=self._node.clouded or self._promoted)
        return found

    @property
    def _promoted(self) -> bool:
        return self._promoted_since < math.inf

    def _note_front(self, now: float, by: float, *, alone: bool, seen_all: bool) -> None:
        """Note whether the front end may be the backend; a role that lasted stays for a while."""
        if alone:
            self._promoted_since = min(self._promoted_since, now)
        if alone or not (seen_all and self._promoted):
            self._demoted_by = math.inf
            return
        if self._demoted_by == math.inf:
            is_steady = now >= self._promoted_since + CONFIRM
            self._demoted_by = by + CONFIRM if is_steady else now
        if now >= self._demoted_by:
            self._promoted_since = self._demoted_by = math.inf

    def _veiled(self, outcome: Outcome) -> Outcome:
        """A device that cannot be looked into may belong to the backend, for all that is known:
        what was published may stay. When it does not, it is what it is without that device.
        """
        return outcome.murky(outcome.now) if self._node.clouded else outcome

    def next_change(self, now: float) -> float:
        """Return the time at which an outcome next changes without an event."""
        moments = [self._demoted_by, *self._downs.next_changes(), *self._asked_by.values()]
        moments += [*self._blurred.values(), *self._descriptions.next_changes()]
        moments += [*self._hidden_ones.next_changes(), *self._last_leaves.next_changes()]
        moments += self._recent.next_changes()
        moments += [since + GRACE for since in self._hidden_down.values()]
        moments += [] if self._whole_since is None else [self._whole_since + UNTOLD]
        moments += [until for _, until in self._trouble.values()]
        return min(
            [self._hearing.next_change(now), *(moment for moment in moments if moment > now)]
        )

    def _note(self, now: float) -> None:
        for hca in self._node.hcas:
            if self._is_visible(hca):
                self._called[hca.pci] = hca.name
            self._note_down(hca, now)
            if hca.infiniband:
                self._descriptions.note(hca, now, self._asked(hca), self._far_end(hca))
            if hca.where in (HERE, LENT):
                self._note_link(hca, now)
            else:
                self._asked_by.pop(hca.pci, None)
            if hca.where == HERE:
                self._unknown.discard(hca.pci)
            if hca.infiniband:
                self._note_trouble(hca, now)
            elif hca.netdev and hca.where == HERE:
                self._hearing.link(hca.netdev, now, up=hca.up)
            if hca.netdev and (self._node.unseen or hca.sick or hca.murky or hca.where != HERE):
                self._hearing.forget(hca.netdev)

    def _note_down(self, hca: Hca, now: float) -> None:
        """Note it; of a port that is read in part, its state may be among what is read."""
        is_visible = self._is_visible(hca)
        self._downs.see(hca.pci, now, visible=is_visible)
        if is_visible and hca.up:
            self._hidden_down.pop(hca.pci, None)
        elif not (hca.up or hca.sick or self._node.unseen) and hca.where == HERE:
            self._hidden_down.setdefault(hca.pci, now)

    def _far_end(self, hca: Hca) -> FarEnd:
        answers = hca.up and not (hca.silent or self._node.smp_trouble)
        return FarEnd(answers, self._is_visible(hca))

    def _is_visible(self, hca: Hca) -> bool:
        return hca.where == HERE and not (hca.sick or hca.murky or self._node.unseen)

    def _asked(self, hca: Hca) -> Asked:
        """Return the times by which a port's far end must have been asked."""
        _, trouble = self._trouble.get(hca.pci, (0.0, 0.0))
        return Asked(self._asked_by.get(hca.pci, math.inf), trouble)

    def _note_link(self, hca: Hca, now: float) -> None:
        if hca.sick or self._node.unseen:
            self._asked_by.pop(hca.pci, None)
            self._hidden_lately.add(hca.pci)
        elif hca.up and hca.pci not in self._asked_by:
            self._asked_by[hca.pci] = (
                now + self._asks_within + (UNTOLD if hca.pci in self._hidden_lately else 0.0)
            )
            self._hidden_lately.discard(hca.pci)
        elif not hca.up:
            self._asked_by.pop(hca.pci, None)
        self._downs.note(hca.pci, now, up=hca.up)

    def _note_trouble(self, hca: Hca, now: float) -> None:
        since, until = self._trouble.get(hca.pci, (now, 0.0))
        if hca.silent or self._node.smp_trouble:
            self._trouble[hca.pci] = (now if until <= now else since, math.inf)
        elif until == math.inf:
            lasted = now - since
            late = lasted + self._asks_within if self._node.by_sa else 0.0
            self._trouble[hca.pci] = (since, now + lasted + RETRIED + late)

    @property
    def _asks_within(self) -> float:
        return ASKED_BY_SA if self._node.by_sa else ASKED

    def blur(self, until: float) -> None:
        """Record that no event reports the links that are down now, or were until now, or their
        return before `until`.
        """
        down = [hca for hca in self._node.hcas if not hca.up or hca.pci in self._downs]
        self._blurred |= {hca.pci: until for hca in down}

    def born(self) -> None:
        """Forget since when links are down, and names: a new agent does not know it."""
        self._downs.clear()
        self._descriptions.born()

    def begin(self, told: Told, on_node: Mapping[str, Values]) -> None:
        """Start a new agent, which read this annotation and these labels from the Node."""
        self._descriptions.begin(told.rows, on_node)
        self._unknown = {
            hca.pci for hca in self._node.hcas if hca.where == UNBOUND and hca.pci not in told.rows
        }
        self._certain = self._may_be_certain = False
        self._unread_boot = told.is_certain
        self._whole_since = None
        self._demoted_by = math.inf
        if self._node.front and self._node.front.pci in told.rows:
            self._promoted_since = -math.inf  # its role is that of the annotation
        self._hidden_ones.begin({pci: times[-1] for pci, times in told.unread.items()})
        self._last_leaves.begin(told.rows, on_node.get("group", NONE))

    def counts(self) -> dict[str, Outcome]:
        """What each port adds to the speed, by its function."""
        found = {hca.pci: self._count(hca) for hca in self._node.hcas}
        if front := self._node.front:
            both = frozenset({"0", str(front.counted)})
            found[front.pci] = Outcome(both if self._promoted else NO_GBPS)
        return found

    def ends(self) -> dict[str, Outcome]:
        """The far end of each port in the labels that join those of all, by its function."""
        gone = dict.fromkeys((hca.pci for hca in self._node.hcas), ABSENT)
        return gone | self._ends

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
            self._whole_since, self._may_be_certain = now, True
        elif now >= self._whole_since + UNTOLD:
            self._certain = True

    def _neighbor(self, hca: Hca, now: float) -> Outcome:
        if hca.where == GONE:
            # An empty class beside a function without its driver is no evidence of a device's
            # absence.
            empty = not any(other.shown for other in self._node.all())
            return _gone(sure=not (self._node.busless or self._node.unseen or empty))
        # It was down, and nothing else has been seen since.
        is_down = now >= self._hidden_down.get(hca.pci, math.inf) + GRACE
        if self._node.unseen or hca.sick or hca.where == UNBOUND:
            return ABSENT.murky() if is_down else FAILED
        outcome = self._infiniband(hca, now) if hca.infiniband else self._ethernet(hca, now)
        if now < self._blurred.get(hca.pci, 0.0) or (hca.murky and is_down):
            outcome = Outcome(outcome.now | NONE, held=True, later=outcome.later | NONE)
        return outcome.murky() if hca.murky else outcome

    def _front(self, front: Hca, now: float) -> Outcome:
        """Return the outcome of the front-end NIC while it is the only RDMA device."""
        outcome = self._neighbor(front, now)
        if self._node.clouded:  # what else there is may be the backend
            return outcome.murky()
        # It stays the front end once that has lasted for a minute, though the others are gone.
        return Outcome(outcome.now | NONE, held=True, later=outcome.later | NONE)

    def _infiniband(self, hca: Hca, now: float) -> Outcome:
        if not hca.up and now < self._trouble.get(hca.pci, (0.0, 0.0))[1]:
            return ABSENT.murky()  # a failed query is no evidence about any port
        if not hca.up:
            return self._down(hca, now)
        devices, unknown = self._descriptions.devices(hca, now, self._asked(hca))
        names = [label((device, hca.peer.port, None)) for device in sorted(devices)]
        outcome = seen(*names)
        outcome = outcome.murky(NOTHING) if unknown else outcome
        if now < self._trouble.get(hca.pci, (0.0, 0.0))[1] or hca.silent or self._node.smp_trouble:
            return outcome.murky()
        if now >= self._asked_by.get(hca.pci, math.inf):
            return outcome
        return outcome.murky() if self._node.by_sa else outcome.murky(NOTHING)

    def _down(self, hca: Hca, now: float) -> Outcome:
        """Return the outcome of an InfiniBand port whose link is down."""
        down = self._downs.find(hca.pci, now)
        if now >= down.since + GRACE:
            return ABSENT
        return Outcome(held=True) if now < down.earliest + GRACE else ABSENT.murky()

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
            # A role is steady: the front end stays one, once that has lasted for a minute.
            found = front | NONE
            return FAILED if self._node.unseen else Outcome(found, held=bool(self._node.busless))
        word = "infiniband" if self._node.infiniband else "roce"
        hidden = self._hidden(hcas)
        if self._node.unseen:
            return FAILED
        if len(hidden) == len(hcas):
            return self._all_hidden(
                hidden, word, NONE | (front if self._promoted else NOTHING), now
            )
        if any(hca.murky for hca in hcas):
            return seen(word).murky(frozenset({word, None}))
        waited = [hca for hca in hidden if not self._hidden_ones.is_given_up(hca.pci, now)]
        if not waited or self._node.infiniband:
            return seen(word)
        # Those that are read keep it meanwhile: the hold of these begins if they are hidden, too.
        outcome = seen(word) if self._may_be_given_up(waited, now) else Outcome(endless=True)
        return outcome.murky(frozenset({word}))

    def _all_hidden(self, hcas: list[Hca], word: str, nothing: Values, now: float) -> Outcome:
        """Return the flavor: each keeps it for a hold of its own, be those of others over."""
        if self._may_be_given_up(hcas, now):
            is_over = all(self._hidden_ones.is_given_up(hca.pci, now) for hca in hcas)
            return Outcome(nothing, held=not is_over, later=nothing)
        may_be_over = any(self._hidden_ones.may_be_given_up(hca.pci, now) for hca in hcas)
        return Outcome(frozenset({word} if may_be_over else ()), held=True, later=nothing)

    def _may_be_given_up(self, hcas: Iterable[Hca], now: float) -> bool:
        return all(self._hidden_ones.may_be_given_up(hca.pci, now) for hca in hcas)

    def _speed(self, hcas: list[Hca]) -> Outcome:
        if self._node.unseen and hcas and self._certain:
            return seen(LAST)
        if self._node.unseen and self._may_be_certain:
            return Outcome(held=True, later=frozenset({LAST, None}))
        if self._node.unseen or (self._node.busless and not self._node.all()):
            return FAILED
        ports = seen(SUM)
        if self._node.busless and len(hcas) < len(self._node.hcas):
            return ports.murky(frozenset({SUM}))
        hidden = self._hidden(hcas)
        if hcas and all(hca.murky or hca in hidden for hca in hcas):
            # The class may look as if nobody could be looked into: past the hold there is no sum.
            # The hold of each may have begun while the class itself could not be read.
            return seen(SUM, LAST).murky(frozenset({SUM, None}))
        doubtful = hidden or any(hca.murky for hca in hcas)
        return ports.murky(frozenset({SUM})) if doubtful and not self._certain else ports

    def _accelerator(self) -> Outcome:
        if (
            self._node.blind or self._node.busless
        ):  # NVML is not queried; the last answer may become valid again
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
