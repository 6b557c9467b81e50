"""Render the labels of what is known of a node: a pure function of its facts."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from agent import encode
from agent.labels.table import FREEZABLE, LABELS, is_infiniband
from agent.model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.encode import Naming
    from agent.labels.table import Label, Value
    from agent.memory import Known
    from agent.reasons import HoldReason


# Of each row below a prefix: its family, and a key without the prefix, before and after `{if}`.
ROWS = tuple(
    (row, family, *name.partition("{if}"))
    for row, (family, slash, name) in ((row, row.key.partition("/")) for row in LABELS)
    if slash
)
SITES = frozenset({"fabric", "leafgroup", "rack", "superpod"})  # the site's, below P and IB


class Rendered(NamedTuple):
    """The labels that the Node should carry, by key, and the problems of those that it cannot."""

    labels: dict[str, str]
    # keys whose value has facts in it that were not read now
    held: Mapping[str, HoldReason] = MappingProxyType({})
    problems: tuple[Problem, ...] = ()
    # keys whose value lacks facts that were not read; without a label if it lacks all
    incomplete: Mapping[str, HoldReason] = MappingProxyType({})
    notes: tuple[Problem, ...] = ()  # of labels whose text is not what a neighbor sent
    # keys whose labels stay as the Node has them, since facts are missing that they are made of
    frozen: Mapping[str, HoldReason] = MappingProxyType({})

    @property
    def kept(self) -> dict[str, HoldReason]:
        """The keys whose labels are held or frozen."""
        return {**self.held, **self.frozen}

    def over(self, own: Mapping[str, str]) -> Rendered:
        """Return it with the values of the frozen labels too, of those that the Node has."""
        kept = {key: why for key, why in self.frozen.items() if key in own}
        labels = dict(sorted({**self.labels, **{key: own[key] for key in kept}}.items()))
        return self._replace(labels=labels, held={**self.held, **kept})


def render(known: Known, naming: Naming) -> Rendered:
    """Render the labels of what is known after an observation."""
    labels: dict[str, str] = {}
    held: dict[str, HoldReason] = {}
    incomplete: dict[str, HoldReason] = {}
    faults: dict[str, Problem] = {}
    notes: dict[Problem, None] = {}  # one for the rows of both prefixes
    frozen: dict[str, HoldReason] = {}
    for key, value in _values(known, naming):
        if value.note:
            notes[Problem("labels", value.interface or key, None, value.note)] = None
        text, fault = encode.value(value.text or ""), encode.key_fault(key)
        if text and fault:
            faults[key] = Problem("labels", key, None, f"label not written: {fault}")
            continue
        if text:
            labels[key] = text
        if value.hold and value.is_frozen:
            frozen[key] = value.hold
        elif value.hold:
            (held if text and value.is_held else incomplete)[key] = value.hold
    ordered = dict(sorted(labels.items()))
    return Rendered(ordered, held, tuple(faults.values()), incomplete, tuple(notes), frozen)


def _values(known: Known, naming: Naming) -> Iterator[tuple[str, Value]]:
    """Yield the values of all rows with their keys; only what was published whole is frozen."""
    with_infiniband = is_infiniband(known)
    for row in LABELS:
        templates = keys_of(row, naming)
        is_other = row.key.startswith("IB/") and not with_infiniband
        for value in row.values(known):
            is_frozen = value.is_frozen and row.key in known.whole
            for template in templates if is_frozen or not is_other else ():
                key = template.replace("{if}", value.interface or "")
                yield key, value._replace(is_frozen=is_frozen)


def freezable(naming: Naming) -> dict[str, str]:
    """Return the keys of the labels that can be frozen, by their rows."""
    keys = {row.key: keys_of(row, naming) for row in LABELS if row.key in FREEZABLE}
    return {row: several[0] for row, several in keys.items() if several}


class Subject(NamedTuple):
    """A label key, its row of the label table, and the interface that the key names."""

    key: str
    row: Label
    interface: str | None
    family: str  # `P` or `IB`, or `ACC` for a whole key


def subject_of(key: str, naming: Naming) -> Subject | None:
    """Return the row of a label key; None if the key is of no row."""
    whole = {naming.accelerator: LABELS[-1]}  # the rows whose keys are below no prefix
    if naming.tiers:
        whole |= {naming.tiers[row.tier]: row for row in LABELS if row.tier is not None}
    if key and (row := whole.get(key)):
        return Subject(key, row, None, "ACC")
    prefix, _, name = key.partition("/")
    prefixes = {"P": naming.prefix, "IB": naming.ib_prefix}
    if prefix and prefix in prefixes.values():
        for row, family, interface in rows_of(name):
            if prefixes[family] == prefix:
                return Subject(key, row, interface, family)
    return None


def rows_of(name: str) -> Iterator[tuple[Label, str, str | None]]:
    """Yield the rows of a key without its prefix: row, family, and the interface in the key."""
    for row, family, before, of_interface, after in ROWS:
        if name.startswith(before) and name.endswith(after):
            interface = name[len(before) : len(name) - len(after)]
            if bool(interface) == bool(of_interface):
                yield row, family, interface or None


def is_taken(key: str, naming: Naming) -> bool:
    """Return True for a key of the table, or of the site's half below the same prefixes."""
    prefix, _, name = key.rpartition("/")
    is_below = prefix in {naming.prefix, naming.ib_prefix}
    is_of_site = name in SITES or "expected" in name.split(".")
    return subject_of(key, naming) is not None or (is_below and is_of_site)


def keys_for(naming: Naming, interfaces: Iterable[str]) -> list[str]:
    """Return the keys of all rows for these interfaces."""
    names = list(interfaces)
    return [
        template.replace("{if}", name)
        for row in LABELS
        for template in keys_of(row, naming)
        for name in (names if "{if}" in template else [""])
    ]


def keys_of(row: Label, naming: Naming) -> list[str]:
    """Return the keys that a row is written under, with `{if}`; none if the naming turns it off."""
    if row.key == "ACC":
        return [naming.accelerator] if naming.accelerator else []
    family, _, name = row.key.partition("/")
    prefix = naming.ib_prefix if family == "IB" else naming.prefix
    keys = [f"{prefix}/{name}"] if prefix else []
    if row.tier is None or not naming.tiers:
        return keys
    return [*([] if row.tier else keys), naming.tiers[row.tier]]
