"""Render the labels of an observation, and hold published labels that cannot be read now."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from agent.labels import encode
from agent.labels.table import LABELS
from agent.labels.values import link_layers, unread
from agent.model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.labels.table import Label, Naming
    from agent.labels.values import Value
    from agent.model import Observation
    from agent.reasons import HoldReason

    Labels = Mapping[str, str]  # by key


class Rendered(NamedTuple):
    """The labels that the Node should carry, by key, and the problems of those that it cannot."""

    labels: dict[str, str]
    # keys that keep their published value, or whose value has a part that is held
    held: Mapping[str, HoldReason] = MappingProxyType({})
    problems: tuple[Problem, ...] = ()
    incomplete: tuple[str, ...] = ()  # keys with a new value made from incomplete facts
    notes: tuple[Problem, ...] = ()  # of labels whose text is not the one that a neighbor sent


def render(observation: Observation, naming: Naming, previous: Labels | None = None) -> Rendered:
    """Render the labels of an observation.

    `previous` are the labels that may be held: those that the Node carries, that the agent owns and
    whose hold has not ended.
    """
    previous = previous or {}
    draft = _Draft(previous)
    for template, row in _rows(naming, _is_infiniband(observation, naming, previous)):
        twin = _twin(row.key, naming)
        for value in row.values(observation):
            draft.add(template, value, twin)
    return draft.rendered()


@dataclass(slots=True)
class _Draft:
    """The labels rendered so far; see Rendered."""

    previous: Labels
    labels: dict[str, str] = field(default_factory=dict)
    held: dict[str, HoldReason] = field(default_factory=dict)
    incomplete: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: dict[Problem, None] = field(default_factory=dict)  # one for the rows of both prefixes

    def add(self, template: str, value: Value, twin: str | None) -> None:
        """Add the labels of a value: those that it holds, else a new one."""
        if value.hold and (kept := self._kept(template, value, twin)):
            self.labels |= kept
            self.held |= dict.fromkeys(kept, value.hold)
        else:
            self._add_new(template.replace("{if}", value.interface or ""), value)

    def _kept(self, template: str, value: Value, twin: str | None) -> dict[str, str]:
        """Return the published labels that a value holds.

        Both prefixes say the same: where somebody else took a label, and its twin is held, the new
        one has the text of the twin and not an incomplete one.
        """
        kept = _kept(template, value, self.previous)
        if value.text and not kept and twin and twin in self.previous:
            return {template: self.previous[twin]}
        return kept

    def rendered(self) -> Rendered:
        """Return the labels in the order of their keys."""
        labels = dict(sorted(self.labels.items()))
        problems, notes = tuple(self.problems), tuple(self.notes)
        return Rendered(labels, self.held, problems, tuple(self.incomplete), notes)

    def _add_new(self, key: str, value: Value) -> None:
        """Add the value's label, unless no character of its text is valid in a label."""
        if value.note:
            self.notes[Problem("labels", value.interface or key, None, value.note)] = None
        text = encode.value(value.text or "")
        if text and self._is_valid(key):
            self.labels[key] = text
            if value.hold:
                self.incomplete.append(key)
            elif value.part:
                self.held[key] = value.part

    def _is_valid(self, key: str) -> bool:
        """Return True if Kubernetes accepts the key; add a problem otherwise."""
        fault = encode.key_fault(key)
        if fault:
            self.problems.append(Problem("labels", key, None, f"label not written: {fault}"))
        return not fault


def _rows(naming: Naming, is_infiniband: bool) -> Iterable[tuple[str, Label]]:
    """Yield the rows that are written, each after its template."""
    for row in LABELS:
        template = _template(row.key, naming)
        if template and (is_infiniband or not row.key.startswith("IB/")):
            yield template, row


def _is_infiniband(observation: Observation, naming: Naming, previous: Labels) -> bool:
    """Return True if a backend port is InfiniBand; while one is unread, by the published flavor."""
    if "InfiniBand" in link_layers(observation):
        return True
    published = previous.get(f"{naming.prefix}/flavor")
    return published == "infiniband" and unread(observation) is not None


class Subject(NamedTuple):
    """A label key, its row of the label table, and the interface that the key names."""

    key: str
    row: Label
    interface: str | None


def subject_of(key: str, naming: Naming) -> Subject | None:
    """Return the row of a label key; None if the key is of no row."""
    for row in LABELS:
        template = _template(row.key, naming) or ""
        if key and key == template:
            return Subject(key, row, None)
        if "{if}" in template and (interface := _interface(key, template)):
            return Subject(key, row, interface)
    return None


def keys_for(naming: Naming, interfaces: Iterable[str]) -> list[str]:
    """Return the keys of all rows for these interfaces."""
    templates = filter(None, (_template(row.key, naming) for row in LABELS))
    names = list(interfaces)
    return [
        template.replace("{if}", name)
        for template in templates
        for name in (names if "{if}" in template else [""])
    ]


def _template(key: str, naming: Naming) -> str | None:
    """Return a row's key with its prefix, `{if}` left in it; None if the naming turns it off."""
    if key == "ACC":
        return naming.accelerator or None
    family, _, name = key.partition("/")
    prefix = naming.ib_prefix if family == "IB" else naming.prefix
    return f"{prefix}/{name}" if prefix else None


def _twin(key: str, naming: Naming) -> str | None:
    """Return the template of the row of the same name under the other prefix; None without one."""
    family, _, name = key.partition("/")
    twin = f"{'P' if family == 'IB' else 'IB'}/{name}"
    return _template(twin, naming) if any(row.key == twin for row in LABELS) else None


def _kept(template: str, value: Value, previous: Labels) -> dict[str, str]:
    """Return the published labels of a row that a value holds: those of interfaces it covers.

    Example: mlx5_1 cannot be read, so the value covers mlx5_1 and its ports mlx5_1-*. Of the row
    `P/neighbors.current.{if}.device` the published labels of mlx5_1 and mlx5_1-3 are kept, those of
    mlx5_10 are not.
    """
    return {key: text for key, text in previous.items() if _is_held(key, template, value)}


def _is_held(key: str, template: str, value: Value) -> bool:
    """Return True if the key is of the template's row, and of an interface the value covers."""
    if "{if}" not in template:
        return key == template
    interface = _interface(key, template)
    return bool(interface) and value.covers(interface)


def _interface(key: str, template: str) -> str:
    """Return the part of the key at the template's `{if}`; "" if the key is another row's."""
    before, _, behind = template.partition("{if}")
    if not (key.startswith(before) and key.endswith(behind)):
        return ""
    return key[len(before) : len(key) - len(behind)]
