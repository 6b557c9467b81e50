"""Hostlist expressions of Slurm: `gpu-[001-004,007],login`.

A number in brackets has leading zeros up to the width of the range's first one, so `08`, `09` and
`10` are `[08-10]`, and `8`, `9` and `10` are `[8-10]`: a name is in a range only if that range
expands to it letter by letter.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from agent.model import natural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_NUMBERED = re.compile(r"(.*?[^0-9])([0-9]{1,9})", re.DOTALL)
UNPADDED = 0


def hostlist(names: Iterable[str]) -> str:
    """Return the names as one expression, in natural order, each of them once."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(names), key=natural):
        match = _NUMBERED.fullmatch(name)
        prefix, digits = match.groups() if match else (name, "")
        families[prefix].append(digits)
    return ",".join(part for prefix, found in families.items() for part in _family(prefix, found))


def _family(prefix: str, found: Collection[str]) -> Iterator[str]:
    """Yield the expressions of the names with one prefix."""
    if "" in found:
        yield prefix
    numbers = [digits for digits in found if digits]
    ranges = [part for width, values in _widths(numbers) for part in _ranges(values, width)]
    if len(ranges) == 1 and "-" not in ranges[0]:
        yield prefix + ranges[0]
    elif ranges:
        yield f"{prefix}[{','.join(ranges)}]"


def _widths(numbers: Iterable[str]) -> list[tuple[int, list[int]]]:
    """Return the numbers by the width that leading zeros fill; UNPADDED without any."""
    widths: dict[int, list[int]] = defaultdict(list)
    padded = {len(digits) for digits in numbers if _is_padded(digits)}
    for digits in numbers:
        widths[len(digits) if len(digits) in padded else UNPADDED].append(int(digits))
    return sorted(widths.items())


def _is_padded(digits: str) -> bool:
    return len(digits) > 1 and digits.startswith("0")


def _ranges(values: list[int], width: int) -> Iterator[str]:
    """Yield `001-064` for each run of successive numbers, in ascending order."""
    first = previous = values[0]
    for value in [*values[1:], None]:
        if value != previous + 1:
            yield _range(first, previous, width)
            first = value if value is not None else first
        previous = value if value is not None else previous


def _range(first: int, last: int, width: int) -> str:
    text = f"{first:0{width}}"
    return text if first == last else f"{text}-{last:0{width}}"
