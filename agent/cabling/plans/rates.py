"""Parse the rates of plans into Gb/s, as `ports/N/rate` of sysfs counts them.

The one parser of rates: of cells in any kind of plan, and of the labels `speed.expected` and
`speed.current`.

Invariant: None is returned for what is no rate, or one without its unit: nothing is assumed, but
where the format of a file says what a bare number counts.
"""

from __future__ import annotations

import re
from functools import lru_cache

_RATE = re.compile(
    r"(\d{1,9}(?:\.\d{1,6})?)(?: ?(m|g|t)(?:b|bit|bits|be|bps|b/|b/s|bit/s|bps/s|b/sec)?)?",
    re.ASCII | re.IGNORECASE,
)
MAX_RATE = 1e9  # Gb/s; what has more digits is no rate
_SCALE = {"m": 0.001, "g": 1.0, "t": 1000.0}
_LINK = re.compile(r"(\d{1,2})x ?([a-z]{3}(?:10)?)", re.IGNORECASE)
# The name of a lane's speed (IBTA vol. 1, 14.2.5.6), the signaling rate, which iblinkinfo prints,
# and Gb/s as the kernel counts them.
SPEEDS = (
    ("SDR", "2.5", 2.5),
    ("DDR", "5.0", 5.0),
    ("QDR", "10.0", 10.0),
    ("FDR10", "10.3125", 10.0),
    ("FDR", "14.0625", 14.0),
    ("EDR", "25.78125", 25.0),
    ("HDR", "53.125", 50.0),
    ("NDR", "106.25", 100.0),
    ("XDR", "212.5", 200.0),
)
LANES = {name: gbps for name, _, gbps in SPEEDS}
SIGNALING = {text: gbps for _, text, gbps in SPEEDS}


@lru_cache(maxsize=256)
def rate(text: str, bare: str = "") -> float | None:
    """Parse `400G`, `100 Gb/s`, `1.6T`, `100000M`, `4xNDR`; None for anything else.

    `bare` is the unit of a number without one: G in our own CSV, M in `BandWidth` of SONiC's
    links.csv.
    """
    text = text.strip()
    if match := _RATE.fullmatch(text):
        unit = (match[2] or bare).lower()
        gbps = float(match[1]) * _SCALE[unit] if unit else MAX_RATE
        return gbps if gbps < MAX_RATE else None
    if match := _LINK.fullmatch(text):
        return lanes(int(match[1]), LANES.get(match[2].upper()))
    return None


def lanes(count: int, speed: float | None) -> float | None:
    """Return the rate of a link; 4 lanes of FDR are 56."""
    return count * speed if speed else None
