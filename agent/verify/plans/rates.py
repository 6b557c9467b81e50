"""Parse the rates of plans into Gb/s, as `ports/N/rate` of sysfs counts them.

Invariant: None is returned for what is no rate, or one without its unit: nothing is assumed.
"""

from __future__ import annotations

import re
from functools import lru_cache

_RATE = re.compile(
    r"(\d{1,7}(?:\.\d{1,4})?) ?(m|g|t)(?:b|bit|bits|be|bps|b/s|bit/s|bps/s|b/sec)?", re.IGNORECASE
)
_NUMBER = re.compile(r"\d{1,8}")
_SCALE = {"m": 0.001, "g": 1.0, "t": 1000.0}
_LINK = re.compile(r"(\d{1,2})x ?([a-z]{3}(?:10)?)", re.IGNORECASE)
# Gb/s of one lane by the name of its speed (IBTA vol. 1, 14.2.5.6), as the kernel counts it.
LANES = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR10": 10.0,
    "FDR": 14.0,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
# What iblinkinfo prints as the speed of a lane: the signaling rate.
SIGNALING = {
    "2.5": 2.5,
    "5.0": 5.0,
    "10.0": 10.0,
    "10.3125": 10.0,
    "14.0625": 14.0,
    "25.78125": 25.0,
    "53.125": 50.0,
    "106.25": 100.0,
    "212.5": 200.0,
}


@lru_cache(maxsize=256)
def rate(text: str) -> float | None:
    """Parse `400G`, `100 Gb/s`, `1.6T`, `100000M`, `4xNDR`; None for anything else."""
    if match := _RATE.fullmatch(text.strip()):
        return float(match[1]) * _SCALE[match[2].lower()]
    if match := _LINK.fullmatch(text.strip()):
        return lanes(int(match[1]), LANES.get(match[2].upper()))
    return None


@lru_cache(maxsize=256)
def megabits(text: str) -> float | None:
    """Parse `BandWidth` of SONiC's links.csv, in Mb/s: 100.0 of `100000`; or any `rate`."""
    if _NUMBER.fullmatch(text.strip()):
        return int(text) / 1000
    return rate(text)


def lanes(count: int, speed: float | None) -> float | None:
    """Return the rate of a link; 4 lanes of FDR are 56."""
    return count * speed if speed else None
