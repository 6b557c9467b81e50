"""The memory's rows as the annotation has them, both ways (agent/memory.py).

Anyone with access to the Node can edit the annotation, so at the start of an agent

- a far end counts if the label of its interface has the same device, else the texts of the label
  are the far end;
- the last far ends count if they make up the published leaf group; if that is no hash, each one
  whose name it contains;
- what a port counted last counts in the same boot, if the rows sum to the published speed;
- the times since which parts are unread count in the same boot; where a boot has no ID, as well;
- a row does not count whose device the flags leave out;
- a port has its role of before if the rule set and the flags are the same, and all have room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from agent import encode
from agent.facts import is_word
from agent.ids import GUID, HASH, is_named, is_pci_glob
from agent.kube.annotation import (
    MAX_OTHERS,
    Annotation,
    OtherPort,
    Report,
    is_cut,
    writable,
)
from agent.kube.managed_fields import Keys
from agent.labels.render import freezable
from agent.labels.table import FLAVOR, LEAF_GROUP, SPEEDS
from agent.memory import KEPT, ROUND, Fact, FarEnd, Known, Published
from agent.model import Failed, Observation
from agent.reasons import HoldReason
from agent.sources import NAMES
from agent.sources.steady import NOTHING, REMEMBERED, VERSION, Inventory, Pin

Globs = tuple[tuple[str, ...], tuple[str, ...]]  # excluded devices, those of the backend
NO_GLOBS: Globs = ((), ())
EndTexts = Mapping[str, str]  # texts of one interface, by the last part of their keys

LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}


def annotate(
    observation: Observation,
    known: Known,
    previous: Annotation | None = None,
    left_out: float = 0.0,
    roles: tuple[Globs, Inventory] | None = None,
) -> Annotation:
    """Return the annotation for what is known after an observation, of any size.

    The time of the last full observation and the verdict come from `previous`. `left_out` are the
    seconds that the clock of what is known is behind CLOCK_BOOTTIME. `roles`: they are steady,
    under these flags, and by what is remembered; None: they are those of one observation, and no
    agent keeps them.
    """
    previous = previous or Annotation(None, None)
    globs, seen = roles or (None, NOTHING)
    boot_id = observation.boot_id
    now = Report(int(observation.time), boot_id if is_word(boot_id) else None)
    # No source failed, and none is switched off.
    outcomes = [getattr(observation, name) for name in NAMES]
    is_full = not (observation.off or any(isinstance(outcome, Failed) for outcome in outcomes))
    # The times say until when far ends were known: while some are awaited, they stay.
    awaited = [fact for fact in known.facts if _is_awaited(fact, known.started)]
    is_domain_awaited = known.domain_why is not None and known.domain_since == known.started
    uptime = int(known.now + left_out) or None
    if awaited or is_domain_awaited:
        is_full, now = False, now._replace(time=previous.reported.time or now.time)
        uptime = previous.uptime if previous.reported.boot_id == now.boot_id else None
    last = now if is_full else Report(previous.time, previous.boot_id)
    kept = partial(_kept, known, left_out)

    def row_of(fact: Fact) -> Fact | None:
        row = writable(fact)
        return row and row._replace(
            state_since=kept(fact.state_since),
            # A far end that is not known any more has no hold.
            far_since=kept(fact.far_since, is_awaited=fact in awaited) if fact.far else None,
            role_since=kept(fact.role_since),
            # Without the source no label has a sum of the counts.
            gbps=None if "rdma" in observation.off else row.gbps,
        )

    return Annotation(
        last.time,
        last.boot_id,
        tuple(filter(None, map(row_of, known.facts))),
        lost=tuple(filter(None, map(writable, known.lost))) if known.is_seeded else previous.lost,
        verdict=previous.verdict,
        partial=None if is_full else now,
        unknown_since=kept(known.unknown_since),
        domain_since=kept(known.domain_since, is_awaited=True),
        group_since=kept(known.group_since),
        rules=None if globs is None else rule_set(globs),
        others=() if globs is None else _others(observation, previous),
        gpus=seen.gpus[:MAX_OTHERS],
        away=seen.away[:MAX_OTHERS],
        missed=None if seen.missed is None else int(seen.missed),
        uptime=uptime,
        position=observation.position_after(previous.position),
    )


def _kept(
    known: Known, left_out: float, since: float | None, *, is_awaited: bool = False
) -> int | None:
    """Return the time to write since which a part is unread; None if it is too young for that."""
    if since is None:
        return None
    least = ROUND if since == known.started and not is_awaited else KEPT
    if since >= known.started and known.now < since + least:
        return None
    return int(since + left_out)


def _is_awaited(fact: Fact, started: float) -> bool:
    """Return True for a remembered far end whose first frame or answer is awaited."""
    return (
        fact.far is not None
        and fact.far_since == started
        and fact.far_why in {HoldReason.NO_NEIGHBOR, HoldReason.NOT_ASKED}
    )


def _others(observation: Observation, previous: Annotation) -> tuple[OtherPort, ...]:
    """Return the ports that a rule took out whose evidence may be missing at the next start.

    Those of devices that cannot be read now stay.
    """
    read = {role.device.pci for role in observation.ports}
    kept = [port for port in previous.others if port.pci not in read]
    others = [
        OtherPort(role.device.pci, role.port.number, role.rule)
        for role in observation.ports
        if not role.backend and role.device.pci and role.rule in REMEMBERED
    ]
    return tuple(dict.fromkeys([*others, *kept]))[:MAX_OTHERS]


def rule_set(globs: Globs) -> str:
    """Return the version of the rules; flags that name devices change it."""
    flags = repr([sorted(patterns) for patterns in globs])
    return f"{VERSION}-{encode.hashed(flags)}" if any(globs) else f"{VERSION}"


def pins(annotation: Annotation | None, globs: Globs = NO_GLOBS) -> list[Pin]:
    """Return the ports of the annotation that keep their roles."""
    if not annotation or annotation.rules != rule_set(globs) or annotation.left_out:
        return []
    backend = [
        Pin(
            (row.function, row.port),
            row.rule,
            backend=True,
            port_guid=row.port_guid,
            has_link=bool(row.gbps),
            is_lost=row.lost_since is not None,
            layer=row.layer,
        )
        for row in (*annotation.interfaces, *annotation.lost)
        if row.function and row.port and row.rule
    ]
    others = [Pin((port.pci, port.port), port.rule, backend=False) for port in annotation.others]
    return [*others, *backend]


def published(
    annotation: Annotation | None,
    labels: Mapping[str, str],
    keys: Keys,
    boot_id: str | None,
    globs: Globs = NO_GLOBS,
) -> Published:
    """Return what annotation and owned labels of the Node tell a new agent."""
    own = {row: labels[key] for row, key in freezable(keys.naming).items() if key in labels}
    layer, group = LAYERS.get(own.get(FLAVOR, "")), own.get(LEAF_GROUP)
    # Under either prefix: somebody else may have taken the other label.
    speed = next((own[row] for row in sorted(SPEEDS, reverse=True) if row in own), None)
    ends, contradicted = _labeled_ends(labels, keys)
    is_annotated = annotation is not None
    annotation = annotation or Annotation(None, None)
    last = _trusted(annotation, group)
    # A name that was cut makes another hash.
    whole = {name: far for name, far in last.items() if not is_cut(far.name)}
    is_of_boot = annotation.reported.boot_id == boot_id
    if not is_of_boot:
        annotation = _of_another_boot(annotation)
    rows, excluded = list[Fact](), list[Fact]()
    for row in annotation.interfaces:
        known = row._replace(last_far=None) if row.interface in contradicted else row
        name = row.interface
        fact = _fact(known, layer, ends.pop(name, {}), whole.get(name))
        (rows if _is_wanted(fact, globs) else excluded).append(fact)
    fault = _fault(rows, speed) if is_of_boot else "they are of another boot"
    rows += _without_rows(ends, labels if is_annotated else None, layer)
    lost = [
        _fact(row, layer, {}, row.last_far)._replace(gbps=0.0)
        for row in annotation.lost
        if _is_wanted(row, globs)
    ]
    return Published(
        rows,
        lost,
        excluded,
        frozenset(own),
        labels.get(keys.accelerator) if keys.accelerator else None,
        unknown_since=annotation.unknown_since,
        domain_since=annotation.domain_since,
        group_since=annotation.group_since,
        gap=None if group is None else _gap(annotation, rows, group),
        is_whole=not fault and bool(annotation.interfaces) and FLAVOR in own,
        fault=fault,
        subject=keys.annotation,
    )


def _fault(rows: Iterable[Fact], speed: str | None) -> str:
    """Return why what the rows counted cannot be used; "" if it can."""
    total = encode.gbps(sum(row.gbps or 0.0 for row in rows))
    if total == speed:
        return ""
    return f"their sum is {total}, and the speed label is {speed or 'not there'}"


def _gap(annotation: Annotation, rows: Iterable[Fact], group: str) -> HoldReason | None:
    """Return why the published leaf group is not that of the rows."""
    if _is_unsure(annotation):
        return HoldReason.NOT_REMEMBERED
    if _is_group((row.last_far for row in rows), group):
        return None
    return HoldReason.NO_NEIGHBOR


def _labeled_ends(labels: Mapping[str, str], keys: Keys) -> tuple[dict[str, EndTexts], set[str]]:
    """Return the labels of neighbors by interface, and the interfaces with two texts for one.

    They are under either prefix; that of the own one counts.
    """
    ends: defaultdict[str, dict[str, str]] = defaultdict(dict)
    contradicted = set()
    for key in sorted(labels, key=lambda key: not key.startswith(f"{keys.prefix}/")):
        if interface := keys.interface(key):
            name, text = key.rpartition(".")[2], labels[key]
            if ends[interface].setdefault(name, text) != text:
                contradicted.add(interface)
    return dict(ends), contradicted


def _of_another_boot(annotation: Annotation) -> Annotation:
    """Return the annotation without the times of that boot, its last far ends as earlier ones."""

    def earlier(row: Fact) -> Fact:
        return row._replace(is_earlier=row.last_far is not None)

    def timeless(row: Fact) -> Fact:
        return earlier(row)._replace(state_since=None, far_since=None, role_since=None)

    return replace(
        annotation,
        interfaces=tuple(map(timeless, annotation.interfaces)),
        lost=tuple(map(earlier, annotation.lost)),
        unknown_since=None,
        domain_since=None,
        group_since=None,
    )


def switches(rows: Iterable[Fact]) -> dict[str, tuple[str, str | None]]:
    """Return node GUID and NodeDescription of each interface's last far end, as published."""
    ends = {row.interface: row.far or row.last_far for row in rows}
    return {
        interface: (far.id, far.name)
        for interface, far in ends.items()
        if far and far.id and GUID.fullmatch(far.id)
    }


def _without_rows(
    ends: Mapping[str, EndTexts], labels: Mapping[str, str] | None, layer: str | None
) -> Iterator[Fact]:
    """Yield the ports of which the annotation has no row, as of a port without PCI function.

    Their far ends are leaves if the joined label has them; all are without an annotation (None).
    """
    joined = [text for key, text in (labels or {}).items() if key.endswith("/leaves.current")]
    leaves = (joined or [""])[0]
    for name, texts in ends.items():
        far = _far_end(texts)
        is_leaf = labels is None or bool(HASH.fullmatch(leaves)) or _is_part(far, leaves)
        yield Fact(name, None, layer=layer, far=far._replace(is_station=not is_leaf))


def _fact(row: Fact, layer: str | None, texts: EndTexts, last: FarEnd | None) -> Fact:
    """Return a row of the annotation with what the labels of its interface tell."""
    far = _far_end(texts) if texts else None
    known = row.far or row.last_far
    if far and known and encode.value(known.device) == far.name:
        far = known._replace(port_name=far.port_name)
    elif far and row.far and is_cut(row.far.name):
        far = far._replace(is_station=(row.far.name or "").endswith(f"~{far.name}"))
    if row.layer:
        layer = row.layer
    elif last and last.id:  # of that fabric
        layer = "InfiniBand" if GUID.fullmatch(last.id) else "Ethernet"
    number, leg = row.port, row.leg
    if not number:  # as far as the name of the interface has them
        _, *parts = row.interface.split("-", 2)
        number = int(parts.pop(0)) if parts and parts[0].isdecimal() else None
        leg = "-".join(parts) or None
    return row._replace(port=number, leg=leg, layer=layer, far=far, last_far=last)


def _far_end(texts: EndTexts) -> FarEnd:
    """Return the far end that the labels of an interface are of: their own texts."""
    return FarEnd(None, texts.get("device"), texts.get("port-id"), texts.get("port-name"))


def _trusted(annotation: Annotation, published: str | None) -> dict[str, FarEnd]:
    """Return the last far ends by interface, without those that the published label contradicts.

    An annotation that had no room for a part of a hash, or for a whole name, cannot be checked.
    """
    last = {row.interface: row.last_far for row in annotation.interfaces if row.last_far}
    is_hash = HASH.fullmatch(published or "") is not None
    is_whole = _is_group(last.values(), published)
    if published is None or is_whole or (is_hash and _is_unsure(annotation)):
        return last
    return {name: far for name, far in last.items() if not is_hash and _is_part(far, published)}


def _is_unsure(annotation: Annotation) -> bool:
    """Return True if the annotation had no room for a row, or for a whole name."""
    ends = [row.last_far for row in annotation.interfaces if row.last_far]
    return bool(annotation.left_out) or any(is_cut(far.name) for far in ends)


def _is_group(ends: Iterable[FarEnd | None], published: str | None) -> bool:
    """Return True if the published label is that of these far ends."""
    names = [far.device for far in ends if far]
    return published in {encode.value(encode.ranged(names)), encode.value(encode.joined(names))}


def _is_part(far: FarEnd, published: str) -> bool:
    """Return True if a label contains the name of a far end, between two `_` or in a range."""
    if encode.is_foreign(far.device):  # the label would be a hash
        return False
    name = encode.replaced(far.device)
    if encode.is_in_range(name, published):
        return True
    parts = {f"_{name}_", f"_{name.strip(encode.TRIMMED)}_"}
    return any(part in f"_{published}_" for part in parts)


def _is_wanted(row: Fact, globs: Globs) -> bool:
    """Return True unless the flags leave the device out.

    A device's name is its interface, or what precedes a dash in it. Its PCI ids are not known any
    more, so a flag that names some may name it.
    """
    excluded, backend = globs
    parts = row.interface.split("-")
    names = ["-".join(parts[:length]) for length in range(1, len(parts) + 1)]

    def is_meant(globs: Iterable[str]) -> bool:
        return any(is_named(globs, name, row.function) for name in names)

    has_ids = any(is_pci_glob(glob) and not glob.startswith("pci:") for glob in backend)
    return not is_meant(excluded) and (not backend or has_ids or is_meant(backend))
