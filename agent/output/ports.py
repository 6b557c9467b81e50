"""The columns of the table: one line for each port, colored by its role and rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.labels import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Port = dict[str, Any]  # an entry of `ports`, and its selected neighbor or None as "neighbor"
    Paint = Callable[[str, str], str]

WIDTH = 80
MIN_COLUMN_WIDTH = 6
GAP = "  "  # between two columns
LINKS = {"InfiniBand": "IB", "Ethernet": "Eth"}
COLORS = {"good": 32, "bad": 31, "dim": 2}  # SGR parameters (ECMA-48, 8.3.117)

COLUMNS: tuple[tuple[str, Callable[[Port], str]], ...] = (
    ("INTERFACE", lambda port: str(port["interface"])),
    ("ROLE", lambda port: str(port["role"])),
    ("LINK", lambda port: LINKS.get(port["link_layer"], port["link_layer"] or "?")),
    ("STATE", lambda port: "standby" if is_standby(port) else port["state"] or "?"),
    ("RATE", lambda port: gbps(_rate(port))),
    ("NEIGHBOR", lambda port: _neighbor(port, "device")),
    ("PORT", lambda port: _neighbor(port, "port_name") or _neighbor(port, "port_id")),
)
TITLES = [title for title, _ in COLUMNS]
FAR_END = (TITLES.index("NEIGHBOR"), TITLES.index("PORT"))


def port_lines(ports: Sequence[Port], *, color: bool) -> list[str]:
    """Return the line of titles and a line for each port; none without ports."""
    if not ports:
        return []
    widths = _widths([TITLES, *map(_cells, ports)])
    paint = _paint if color else _plain
    lines = (paint(_line(_cells(port), widths), _color(port)) for port in ports)
    return [_line(TITLES, widths), *lines]


def is_backend(port: Port) -> bool:
    """Return True for a port of the backend network."""
    return bool(port["role"] == "backend")


def is_standby(port: Port) -> bool:
    """Return True for a leg of an ACTIVE bond that carries no traffic itself."""
    is_active_leg = port["leg"] and is_backend(port) and port["state"] == "ACTIVE"
    return bool(is_active_leg) and port["counted_gbps"] == 0


def gbps(rate: float | None) -> str:
    """Return a rate in Gb/s as `400G`; `-` for None."""
    return "-" if rate is None else encode.gbps(rate)


def _cells(port: Port) -> list[str]:
    return [cell(port) for _, cell in COLUMNS]


def _neighbor(port: Port, field: str) -> str:
    if port["neighbor"]:
        return port["neighbor"][field] or ""
    return "-" if field == "device" and is_backend(port) else ""


def _rate(port: Port) -> float | None:
    """Return the rate of an ACTIVE port; other ports have one in sysfs, too, but do not use it."""
    rate: float | None = port["counted_gbps"] or port["rate_gbps"]
    return rate if port["state"] == "ACTIVE" and not is_standby(port) else None


def _widths(rows: list[list[str]]) -> list[int]:
    """Return the widths of the columns, so that a line has at most WIDTH characters.

    The far end's columns shrink first: the name of an interface is the name in a label key.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for columns in (FAR_END, range(len(widths))):
        while _excess(widths) and max(widths[column] for column in columns) > MIN_COLUMN_WIDTH:
            widths[max(columns, key=lambda column: widths[column])] -= 1
    return widths


def _excess(widths: list[int]) -> bool:
    return sum(widths) + len(GAP) * (len(widths) - 1) > WIDTH


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    fitted = map(_fit, cells, widths)
    return GAP.join(fitted).rstrip()


def _fit(text: str, width: int) -> str:
    """Pad or cut a cell; the cut is in the middle, since the names of a site differ at the end."""
    if len(text) <= width:
        return text.ljust(width)
    head = width // 2
    tail = width - head - 1
    return f"{text[:head]}~{text[len(text) - tail :]}"


def _color(port: Port) -> str:
    if not is_backend(port):
        return "dim"
    return "good" if port["counted_gbps"] else "bad"


def _paint(text: str, color: str) -> str:
    return f"\x1b[{COLORS[color]}m{text}\x1b[0m"


def _plain(text: str, _color: str) -> str:
    return text
