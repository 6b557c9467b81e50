"""The table of label keys, the contract with the programs that read them, and the label values.

A row of LABELS names a key, describes its value and when it is absent, and has the function that
makes its values: of what is known (agent/memory.py), and no more. The README's label table is held
equal to it by a test.

A value says why facts that it is made of were not read just now: remembered ones are in its text
then, or it lacks them, or the label is frozen: it stays as the Node has it.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from agent import encode
from agent.ids import GUID
from agent.memory import HEARD_OF, Fact, FarEnd, Known
from agent.node_description import switch_name
from agent.reasons import HoldReason
from agent.sources.observe import NEIGHBOR_SOURCES
from agent.text import visible

Values = Iterable["Value"]  # of one row

FLAVOR, LEAF_GROUP = "P/flavor", "P/leafgroup.current"
SPEEDS = frozenset({"P/speed.current", "IB/speed.current"})
TIERS = ("P/tier-1.current", "P/tier-2.current")
FREEZABLE = frozenset({FLAVOR, LEAF_GROUP, *TIERS}) | SPEEDS  # rows of the whole node
MAX_QUOTE = 64  # characters of a neighbor's text in a note


class Value(NamedTuple):
    """The raw text of one label, not encoded yet."""

    text: str | None  # None: the facts that it is made of are not known
    interface: str | None = None  # None: a row without interfaces
    hold: HoldReason | None = None  # why facts were not read; None: all were
    is_held: bool = False  # remembered facts are in the text; else it lacks some
    is_frozen: bool = False  # the label stays as the Node has it, since facts of it are missing
    note: str | None = None  # the reason why the text is not what the neighbor sent


def flavor(known: Known) -> Values:
    """Yield `infiniband` or `roce`, the link layer of the backend ports.

    `roce` is not published while a port is unread that is, or may be, InfiniBand.
    """
    facts = [fact for fact in known.facts if not fact.has_ended]
    infiniband = [fact for fact in facts if fact.layer == "InfiniBand"]
    if "rdma" in known.off:
        yield _frozen(HoldReason.SOURCE_OFF)
    elif infiniband:
        yield _of_layer("infiniband", infiniband)
    elif (hold := _ports_missing(known)) and FLAVOR in known.whole:
        yield _frozen(hold)
    elif known.may_be_infiniband:
        yield Value(None, hold=hold or HoldReason.DEVICE_FAILED)
    elif facts and all(fact.layer == "Ethernet" for fact in known.facts):
        value = _of_layer("roce", facts)
        yield value if value.hold else value._replace(hold=hold)
    elif hold := hold or next((fact.state_why for fact in known.facts), None):
        yield Value(None, hold=hold)


def _ports_missing(known: Known) -> HoldReason | None:
    """Return why ports may be missing; None if all are known, be it without their state."""
    return None if known.unknown is HoldReason.INCOMPLETE else known.unknown


def _of_layer(text: str, facts: Iterable[Fact]) -> Value:
    """Return the flavor that ports of one link layer make; a port that is read suffices."""
    unread = [fact.state_why for fact in facts if fact.role_since is not None]
    hold = unread[0] if unread and len(unread) == len(list(facts)) else None
    return Value(text, hold=hold, is_held=hold is not None)


def _frozen(hold: HoldReason) -> Value:
    """Return the value of a label that stays as the Node has it, for want of facts."""
    return Value(None, hold=hold, is_frozen=True)


def speed(known: Known) -> Values:
    """Yield the sum of the rates of the ACTIVE backend ports in Gb/s, `2800G`.

    A port that is unread counts what it did last. Where nobody knows that, the text stays as it is.
    """
    if "rdma" in known.off:
        yield _frozen(HoldReason.SOURCE_OFF)
        return
    if known.unknown and not SPEEDS.isdisjoint(known.whole):
        yield _frozen(known.unknown)
        return
    if why := uncounted(known):
        yield Value(None, hold=known.unknown or why)
        return
    is_part_held = any(fact.state_why and not fact.state_ended for fact in known.facts)
    hold = HoldReason.LAST_COUNT if is_part_held else None
    yield Value(encode.gbps(total(known)), hold=known.unknown or hold, is_held=not known.unknown)


def uncounted(known: Known) -> HoldReason | None:
    """Return why it is not known of any port what it counts; None if it is of some."""
    ended = [fact.state_why for fact in known.facts if fact.has_ended]
    is_over = bool(ended) and len(ended) == len(known.facts)
    if (not known.is_read and not known.facts) or (is_over and HoldReason.DEVICE_GONE not in ended):
        return next(iter(ended), None) or HoldReason.SOURCE_FAILED
    if (known.facts or known.has_strangers) and all(fact.gbps is None for fact in known.facts):
        return next((fact.state_why for fact in known.facts), None) or HoldReason.DEVICE_FAILED
    return None


def total(known: Known) -> float:
    """Return the sum of what the backend ports count, in Gb/s."""
    return sum(fact.gbps or 0.0 for fact in known.facts)


def neighbor_device(known: Known) -> Values:
    """Yield the name of the node at the far end of each backend port.

    Where the name encodes to nothing it is the chassis ID or node GUID, so two switches with such
    names are two devices.
    """
    for value, far in _of_far_ends(known):
        if far is None:
            yield value
            continue
        is_guid = GUID.fullmatch(far.id or "") is not None
        name = (switch_name(far.name or "") if is_guid else far.name or far.id) or ""
        note = None
        if name and not encode.value(name):
            kind = "node GUID" if is_guid else "chassis ID"
            label = f"the {kind}" if encode.value(far.device) else "missing"
            note = f"{_invalid('name', name)}: the device label is {label}"
        yield value._replace(text=far.device, note=note)


def neighbor_port_id(known: Known) -> Values:
    """Yield the ID of the far port of each backend port, or its hash if it encodes to nothing."""
    for value, far in _of_far_ends(known):
        text = (far.port_id if far else None) or ""
        if text and not encode.value(text):
            note = f"{_invalid('port ID', text)}: the port-id label is its hash"
            yield value._replace(text=encode.hashed(text), note=note)
        else:
            yield value._replace(text=text or None)


def neighbor_port_name(known: Known) -> Values:
    """Yield the name of the far port of each backend port."""
    for value, far in _of_far_ends(known):
        yield value._replace(text=far.port_name if far else None)


def _of_far_ends(known: Known) -> Iterable[tuple[Value, FarEnd | None]]:
    """Yield each interface with its far end, or without if it may be there."""
    for fact in known.facts:
        if fact.interface and (fact.far or fact.far_why in HEARD_OF):
            yield Value(None, fact.interface, fact.far_hold, fact.far is not None), fact.far


def _invalid(kind: str, text: str) -> str:
    shown = visible(text, MAX_QUOTE)
    return f"no character of the neighbor's {kind} '{shown}' is valid in a label"


def leaves(known: Known) -> Values:
    """Yield the distinct neighbor devices that may be switches, in natural order, joined."""
    return _joined(known, encode.joined(far.device for _, far in _of_leaves(known)))


def ports(known: Known) -> Values:
    """Yield the port IDs of the same neighbors in interface order, joined with `_`."""
    return _joined(known, "_".join(far.port_id or "" for _, far in _of_leaves(known)))


def _of_leaves(known: Known) -> list[tuple[Fact, FarEnd]]:
    """Return the ports with their far ends, without those that are neither Bridge nor Router."""
    return [(fact, fact.far) for fact in known.facts if fact.far and not fact.far.is_station]


def _joined(known: Known, text: str) -> Values:
    """Yield a text of all far ends: the unread ones are those of before, within their hold."""
    held = [fact.far_hold for fact, _ in _of_leaves(known) if fact.far_hold]
    held.sort(key=lambda why: why is HoldReason.LENT)
    lacking = _ports_missing(known) or _lacking(known)
    if held or text or lacking:
        yield Value(text or None, hold=held[0] if held else lacking, is_held=bool(held))


def _lacking(known: Known) -> HoldReason | None:
    """Return why a far end that may be there is not known; None if none is missing."""
    missing = (fact for fact in known.facts if not fact.far and not fact.has_ended)
    hold = next((fact.far_hold for fact in missing if fact.far_hold in HEARD_OF), None)
    is_off = not known.facts and known.off.issuperset(_sources(known))
    return HoldReason.SOURCE_OFF if is_off else hold


def leaf_group(known: Known) -> Values:
    """Yield the leaves that the node hangs on, each port with the last far end that it had."""
    sources = _sources(known)
    if known.disabled.issuperset(sources):
        return
    if known.off.issuperset(sources):
        yield _frozen(HoldReason.SOURCE_OFF)
    elif known.group_hold:
        yield _frozen(known.group_hold)
    else:
        text = encode.ranged(fact.last_far.device for fact in known.facts if fact.last_far)
        hold = None if known.is_seeded else _lacking(known)
        if text or hold:
            yield Value(text or None, hold=hold)


def _sources(known: Known) -> list[str]:
    """Return the sources of the far ends of the backend ports; all if there are none."""
    layers = {fact.layer for fact in known.facts}
    sources = [source for source, layer in NEIGHBOR_SOURCES if layer in layers]
    return sources or [source for source, _ in NEIGHBOR_SOURCES]


def tier(known: Known, number: int) -> Values:
    """Yield the lowest of the switches so many tiers above the leaves."""
    if "tiers" in known.off:
        yield from [_frozen(HoldReason.SOURCE_OFF)] if TIERS[number - 1] in known.whole else []
    elif known.fabric and is_infiniband(known) and (text := known.fabric.label(number)):
        yield Value(text)


def accelerator(known: Known) -> Values:
    """Yield the NVLink domain that all GPUs of the node agree on."""
    if known.domain or known.domain_why:
        yield Value(known.domain, hold=known.domain_why, is_held=bool(known.domain_why))


def is_infiniband(known: Known) -> bool:
    """Return True if the labels of InfiniBand nodes are written."""
    return any(fact.layer == "InfiniBand" and not fact.has_ended for fact in known.facts)


class Label(NamedTuple):
    """One row of the label table."""

    key: str  # P and IB are prefixes, {if} an interface; ACC is a whole key
    value: str  # in words
    absent: str  # in words
    values: Callable[[Known], Values]
    tier: int | None = None  # of which it has the key in --tier-label, too; from 1 on that alone


LABELS = (
    Label(
        "P/flavor",
        "`infiniband` or `roce`, from the link layer of the backend ports",
        "no backend port",
        flavor,
    ),
    Label(
        "P/speed.current",
        "sum of the rates of the ACTIVE backend ports in Gb/s, then `G`: `3200G`, `2.5G`; "
        "`0G` when none is active",
        "no state of a backend port was ever read, or none could be for longer than `--hold`",
        speed,
    ),
    Label(
        "P/neighbors.current.{if}.device",
        "the switch at the other end: InfiniBand its name, else its node GUID; "
        "RoCE the LLDP System Name, else the Chassis ID",
        "no neighbor known",
        neighbor_device,
    ),
    Label(
        "P/neighbors.current.{if}.port-id",
        "the port there: InfiniBand the switch's port number; RoCE the LLDP Port ID",
        "no neighbor known",
        neighbor_port_id,
    ),
    Label(
        "P/neighbors.current.{if}.port-name",
        "the name of that port: RoCE the LLDP Port ID where it is a name, "
        "else the Port Description",
        "the fabric has no port names (InfiniBand)",
        neighbor_port_name,
    ),
    Label(
        "P/leaves.current",
        "the distinct neighbor devices that may be switches, in natural order, joined with `_`",
        "no neighbor known",
        leaves,
    ),
    Label(
        "P/leafgroup.current",
        "the distinct switches that the backend ports are connected to, or were last, joined like "
        "`leaves.current`: a port that is down keeps its leaf; a long list is written in ranges "
        "(`ibleaf-su1-r1..8`)",
        "no backend port ever had a leaf",
        leaf_group,
        tier=0,
    ),
    Label(
        TIERS[0],
        "with `--tiers`: of the switches above the leaves the one with the lowest name",
        "`--tiers` is off, flavor is not infiniband, no such switch, or nobody answered yet",
        partial(tier, number=1),
        tier=1,
    ),
    Label(
        TIERS[1],
        "the same, two tiers above the leaves",
        "as tier 1, or nothing is above that",
        partial(tier, number=2),
        tier=2,
    ),
    Label("IB/speed.current", "the same", "flavor is not infiniband", speed),
    Label(
        "IB/neighbors.current.{if}.device",
        "the same",
        "flavor is not infiniband, or no neighbor known",
        neighbor_device,
    ),
    Label(
        "IB/neighbors.current.{if}.port-id",
        "the same",
        "flavor is not infiniband, or no neighbor known",
        neighbor_port_id,
    ),
    Label(
        "IB/leaves.current",
        "the same",
        "flavor is not infiniband, or no neighbor known",
        leaves,
    ),
    Label(
        "IB/ports.current",
        "the port-ids of the same neighbors in interface order, joined with `_`",
        "flavor is not infiniband, or no neighbor known",
        ports,
    ),
    Label(
        "ACC",
        "`<ClusterUUID>.<CliqueID>`, the string that GPU Feature Discovery writes as "
        "`nvidia.com/gpu.clique`",
        "the GPUs report no common NVLink domain",
        accelerator,
    ),
)
