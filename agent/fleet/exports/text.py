"""The result of an export, and the texts that formats share: comments, hostlists, names, YAML."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from agent.encode import fnv1a_64
from agent.text import natural, visible

Thing = TypeVar("Thing", bound="Hashable")
BACKSLASH = "\\"
MAX_LISTED = 1000  # characters of the names in a note
HASH_LENGTH = 17  # `-` and 16 hex digits
_NUMBERED = re.compile(r"(.*?[^0-9])([0-9]{1,9})", re.DOTALL)


class Exported(NamedTuple):
    """An export: the text for standard output, and notes for standard error."""

    text: str  # ends with a line break; "" if no Node can be exported
    notes: tuple[str, ...] = ()  # one printable line each: what was left out, and why


def commented(lines: Iterable[str], mark: str = "#") -> str:
    """Return lines as comments; none ends with a backslash, which may continue a line."""
    return "".join(f"{mark} {line}{'.' * line.endswith(BACKSLASH)}\n" for line in lines)


def listed(names: Sequence[str], what: str = "Node") -> str:
    """Return a count and the names: `2 Nodes: gpu-[001-002]`."""
    shown = visible(hostlist(names), MAX_LISTED)
    return f"{len(names)} {what}{'s' * (len(names) != 1)}: {shown}"


def hostlist(names: Iterable[str]) -> str:
    """Return the names as one hostlist expression of Slurm: `gpu-[001-004,007],login`.

    The names are in natural order, each of them once. A number in brackets has leading zeros up to
    the width of the range's first number, so `08`, `09` and `10` are `[08-10]`, and `8`, `9` and
    `10` are `[8-10]`: a name is in a range only if that range expands to it letter by letter.
    """
    families: dict[str, list[str]] = defaultdict(list)
    for name in sorted(set(names), key=natural):
        match = _NUMBERED.fullmatch(name)
        prefix, digits = match.groups() if match else (name, "")
        families[prefix].append(digits)
    parts = []
    for prefix, numbers in families.items():
        if "" in numbers:
            parts.append(prefix)
        # Numbers that leading zeros fill to one width belong together; without any, it is 0.
        padded = {len(digits) for digits in numbers if len(digits) > 1 and digits[0] == "0"}
        widths: dict[int, list[int]] = defaultdict(list)
        for digits in filter(None, numbers):
            widths[len(digits) if len(digits) in padded else 0].append(int(digits))
        ranges = []
        for width, values in sorted(widths.items()):
            for _, run in groupby(enumerate(values), lambda pair: pair[1] - pair[0]):
                texts = [f"{value:0{width}}" for _, value in run]
                ranges.append("-".join(dict.fromkeys((texts[0], texts[-1]))))
        if len(ranges) == 1 and "-" not in ranges[0]:
            parts.append(prefix + ranges[0])
        elif ranges:
            parts.append(f"{prefix}[{','.join(ranges)}]")
    return ",".join(parts)


def unique(wanted: Mapping[Thing, str], limit: int) -> dict[Thing, str]:
    """Return a name for each thing: the wanted name.

    Where that is too long, or that of two things, a hash of the thing is appended: the name then
    depends on the thing alone, whatever is in the fleet beside it.
    """
    counts = Counter(wanted.values())
    names = dict(wanted)
    for thing, name in wanted.items():
        if counts[name] > 1 or not 0 < len(name) <= limit:
            head = name[: limit - HASH_LENGTH].rstrip("._-") or "x"
            names[thing] = f"{head}-{fnv1a_64(repr(thing).encode()):016x}"
    return names


class Quoted(str):
    """A text of the data, in quotes: no schema takes it for a number, a date or null."""

    __slots__ = ()


def yaml_text(documents: Iterable[Mapping[str, Any] | Sequence[Any]]) -> str:
    """Return the documents as YAML, keys in the given order; `---` only between two."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Prints `Quoted`."""

    def quoted(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), '"')

    Dumper.add_representer(Quoted, quoted)
    texts: Iterator[str] = (
        yaml.dump(document, Dumper=Dumper, sort_keys=False, width=1 << 30) for document in documents
    )
    return "---\n".join(texts)
