"""Decode the EEPROM of a transceiver module: SFF-8636 (QSFP) and CMIS (QSFP-DD, OSFP, ...).

Octets in, values out. Octet numbers are those of the standards: 0 to 127 in the lower memory, 128
to 255 in each upper page. SFF-8636 is cited by revision 2.10a, CMIS by revision 5.0. No library of
Python that is kept decodes CMIS: pyroute2 0.9 raises NotImplementedError.

Invariants:
- A page that is missing or short is Malformed: nothing is guessed from half of it.
- What the module does not measure is None, though its octets are 0. Light of 0 mW is measured.
- A temperature that no module survives is no temperature: it is None, and named among the alarms.
- Flags are latched, and a module clears them when they are read: a flag is of the time since the
  last read by anyone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from agent.errors import Malformed
from agent.facts import TEXT, Kind, Schema, array, record

MAX_MODULES = 64  # of an answer
HALF = 128  # octets of the lower memory, and of an upper page
LOWER, UPPER, ADVERTISING, LANES = "lower", "00h", "01h", "11h"  # names of pages
# SFF-8024, table 4-1
QSFP = {0x0C: "QSFP", 0x0D: "QSFP+", 0x11: "QSFP28"}
CMIS = {
    0x18: "QSFP-DD",
    0x19: "OSFP",
    0x1B: "DSFP",
    0x1E: "QSFP with CMIS",
    0x1F: "SFP-DD",
    0x20: "SFP+ with CMIS",
}
PASSIVE_COPPER = 3  # CMIS, table 8-15, media type
FIRST_COPPER = 0xA  # SFF-8636, table 6-20, transmitter technology: from here on copper
FIRST_WITH_SUPPORT = 8  # SFF-8636, table 6-3: octet 220 tells of the temperature from rev. 2.8 on
MIN_CELSIUS, MAX_CELSIUS = -40, 125  # of storage and of silicon: beyond it the octets are wrong
ALARMS = ("high alarm", "low alarm", "high warning", "low warning")
CMIS_FLAGS = {  # octets of page 11h, tables 8-83, 8-84
    "tx fault": 135,
    "tx loss of signal": 136,
    "rx loss of signal": 147,
    **{
        f"{name} {alarm}": at + place
        for name, at in (("tx power", 139), ("tx bias", 143), ("rx power", 149))
        for place, alarm in enumerate(ALARMS)
    },
}
Pages = Mapping[str, bytes]


class Transceiver(NamedTuple):
    """One module; None is not measured."""

    kind: str
    vendor: str
    part: str
    serial: str
    celsius: float | None
    rx_mw: tuple[float, ...] | None = None  # received optical power of each lane
    tx_mw: tuple[float, ...] | None = None
    alarms: tuple[str, ...] = ()


class Module(NamedTuple):
    """The helper's answer about one module."""

    netdev: str
    pages: Pages
    error: str | None = None


PAGES = Kind(
    lambda pages: {name: bytes.fromhex(octets) for name, octets in dict(pages).items()},
    lambda pages: {name: octets.hex() for name, octets in pages.items()},
)
MODULE: Schema = {"netdev": TEXT, "pages": PAGES, "error": TEXT}
MODULES = array(record(Module, MODULE, ("netdev", "pages")), MAX_MODULES)


def loaded(answer: Any) -> tuple[Module, ...]:
    """Return the modules of an answer; raises Malformed: it may be of a stranger's snapshot."""
    try:
        modules: tuple[Module, ...] = MODULES.parse(answer.get("modules", []))
    except (ValueError, TypeError, AttributeError):
        text = f"no list of at most {MAX_MODULES} modules with netdev, pages in hex, error"
        raise Malformed(f"modules.json: {text}") from None
    return modules


def pages_of(lower: bytes) -> tuple[str, ...]:
    """Return the upper pages to read, by the lower memory; Malformed for another module."""
    kind = _octet(lower, 0)
    if kind in QSFP:
        return (UPPER,)
    if kind not in CMIS:
        raise Malformed(f"identifier {kind:#04x} is neither of SFF-8636 nor of CMIS")
    # CMIS, table 8-4, MemoryModel: only page 00h is there. Passive copper may not tell so.
    is_flat = _octet(lower, 2) >> 7 or _octet(lower, 85) == PASSIVE_COPPER
    return (UPPER,) if is_flat else (UPPER, ADVERTISING, LANES)


def decode(pages: Pages) -> Transceiver:
    """Decode the lower memory and the pages of `pages_of`."""
    lower = pages.get(LOWER, b"")
    memory: dict[str, bytes] = {}
    for name in (LOWER, *pages_of(lower)):
        what = "lower memory" if name == LOWER else f"page {name}"
        if name not in pages:
            raise Malformed(f"{what} was not read")
        if len(pages[name]) != HALF:
            raise Malformed(f"{what} has {len(pages[name])} of {HALF} octets")
        memory[name] = pages[name]
    kind = memory[LOWER][0]
    if kind in QSFP:
        module = _sff8636(QSFP[kind], memory[LOWER] + memory[UPPER])
    else:
        module = _cmis(CMIS[kind], memory)
    if module.celsius is None or MIN_CELSIUS <= module.celsius <= MAX_CELSIUS:
        return module
    alarm = f"temperature reads {module.celsius:g} C"
    return module._replace(celsius=None, alarms=(alarm, *module.alarms))


def _octet(octets: bytes, at: int) -> int:
    if at >= len(octets):
        raise Malformed(f"lower memory has {len(octets)} of {HALF} octets")
    return octets[at]


def _sff8636(kind: str, octets: bytes) -> Transceiver:
    """Decode SFF-8636: lower memory (6.2) and upper page 00h (6.3).

    Flags of lanes: tables 6-4 to 6-6, monitors: tables 6-7 and 6-8, support: table 6-23.
    """
    is_copper = octets[147] >> 4 >= FIRST_COPPER
    support, tells_temperature = octets[220], octets[1] >= FIRST_WITH_SUPPORT
    has_temperature = not is_copper and bool(support >> 5 & 1 or not tells_temperature)
    alarms = [
        *_lanes("rx loss of signal", octets[3] & 0xF),
        *_lanes("tx loss of signal", octets[3] >> 4),
        *_lanes("tx fault", octets[4] & 0xF),
        *_named("temperature", octets[6] >> 4),
        *_named("supply voltage", octets[7] >> 4),
    ]
    for name, at in (("rx power", 9), ("tx bias", 11), ("tx power", 13)):
        nibbles = [octets[at] >> 4, octets[at] & 0xF, octets[at + 1] >> 4, octets[at + 1] & 0xF]
        for place, alarm in enumerate(ALARMS):
            bits = sum((nibble >> 3 - place & 1) << lane for lane, nibble in enumerate(nibbles))
            alarms += _lanes(f"{name} {alarm}", bits)
    return Transceiver(
        kind,
        _text(octets[148:164]),
        _text(octets[168:184]),
        _text(octets[196:212]),
        _celsius(octets[22:24]) if has_temperature else None,
        None if is_copper else _milliwatts(octets[34:42]),
        _milliwatts(octets[50:58]) if support >> 2 & 1 and not is_copper else None,
        () if is_copper else tuple(alarms),
    )


def _cmis(kind: str, memory: Pages) -> Transceiver:
    """Decode CMIS: lower memory (8.2), pages 00h (8.3), 01h (8.4) and 11h (8.9)."""
    lower, upper = memory[LOWER], bytes(HALF) + memory[UPPER]
    advertising, lanes = (
        bytes(HALF) + memory[name] if name in memory else b"" for name in (ADVERTISING, LANES)
    )
    # table 8-45; a module with flat memory has nothing that advertises
    has_temperature = bool(advertising[159] & 1) if advertising else lower[85] != PASSIVE_COPPER
    module = Transceiver(
        kind,
        _text(upper[129:145]),
        _text(upper[148:164]),
        _text(upper[166:182]),
        _celsius(lower[14:16]) if has_temperature else None,
        alarms=(
            *_named("temperature", _reversed(lower[9] & 0xF)),  # table 8-9
            *_named("supply voltage", _reversed(lower[9] >> 4)),
        ),
    )
    if not lanes:
        return module
    used = [lane for lane in range(8) if not upper[210] >> lane & 1]  # table 8-35
    has_rx, has_tx = advertising[160] >> 2 & 1, advertising[160] >> 1 & 1
    rx, tx = (_milliwatts(lanes[at : at + 16]) for at in (186, 154))  # table 8-88
    of_lanes = [alarm for name, at in CMIS_FLAGS.items() for alarm in _lanes(name, lanes[at])]
    return module._replace(
        rx_mw=tuple(rx[lane] for lane in used) if has_rx else None,
        tx_mw=tuple(tx[lane] for lane in used) if has_tx else None,
        alarms=(*module.alarms, *of_lanes),
    )


def _text(octets: bytes) -> str:
    """Return ASCII that is padded with spaces; other octets are escaped."""
    return octets.decode("ascii", "backslashreplace").strip(" \0")


def _celsius(octets: bytes) -> float:
    return round(int.from_bytes(octets, signed=True) / 256, 1)


def _milliwatts(octets: bytes) -> tuple[float, ...]:
    """Return words of 0.1 microwatts."""
    return tuple(word / 10_000 for word in struct.unpack(f">{len(octets) // 2}H", octets))


def _lanes(name: str, bits: int) -> Iterator[str]:
    """Yield a flag of lanes, from the lowest bit on, as `rx loss of signal: lanes 1 3`."""
    if lanes := [str(lane + 1) for lane in range(8) if bits >> lane & 1]:
        yield f"{name}: lane{'s' * (len(lanes) > 1)} {' '.join(lanes)}"


def _named(name: str, bits: int) -> Iterable[str]:
    """Return the flags of a module's monitor, the highest bit first."""
    return [f"{name} {alarm}" for place, alarm in enumerate(ALARMS) if bits >> 3 - place & 1]


def _reversed(bits: int) -> int:
    """Return four bits in the other order: CMIS has the high alarm in the lowest."""
    return int(f"{bits:04b}"[::-1], 2)
