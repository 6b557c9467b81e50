"""The Prometheus text format, version 0.0.4, and nothing else.

    # HELP bwagent_port_state Whether the port is in this state.
    # TYPE bwagent_port_state gauge
    bwagent_port_state{interface="ibp0",state="ACTIVE"} 1

The law of this module: whatever the label values are, what comes out can be parsed, no series stands in it twice, and
no label value is longer than LONGEST.

prometheus_client writes the same format, and the tests hold this module to its parser. It is not used here, since its
package cannot be imported without its HTTP, WSGI and TLS servers: 7 to 9 MB of the agent's 40, and twice the CPU for
each scrape (benchmarks/metrics_cost.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    Sample = tuple[
        tuple[str | None, ...], float | None
    ]  # label values, and a number; None: unknown, left out

LONGEST = 128  # characters of a label value


def family(
    name: str, kind: str, text: str, labels: tuple[str, ...], samples: Iterable[Sample]
) -> str:
    """All lines of one metric; of samples with the same labels the first counts, and without any there is no line."""
    lines: dict[str, float] = {}
    for values, number in samples:
        if number is not None:
            lines.setdefault(_series(name, labels, values), number)
    if not lines:
        return ""
    body = "".join(f"{series} {_number(number)}\n" for series, number in lines.items())
    return f"# HELP {name} {_escape(text)}\n# TYPE {name} {kind}\n{body}"


def _series(name: str, labels: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    if not labels:
        return name
    pairs = (
        f'{label}="{_value(value or "")}"' for label, value in zip(labels, values, strict=True)
    )
    return f"{name}{{{','.join(pairs)}}}"


def _value(text: str) -> str:
    return _escape(visible(text, LONGEST)).replace('"', r"\"")


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(number: float) -> str:
    """Shortest digits; bytes and bits in full (`400000000000`, not `4e+11`)."""
    return str(int(number)) if number == number // 1 else repr(float(number))
