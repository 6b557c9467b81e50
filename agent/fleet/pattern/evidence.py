"""The two tests that a pattern has to pass: it is a majority, and it is no coincidence.

Both are about the same count: of `n` nodes that could have shown otherwise, `m` agree.
"""

from __future__ import annotations

from math import comb, log2

MAJORITY = 0.7  # the least `confidence`: 4 of 5, 6 of 8, 23 of 32
NO_COINCIDENCE = 15.0  # the least `surprise` in bits: once in 30,000 groups wired at random
AMONG_OTHERS = 8.0  # of a group among others that are regular: once in 250
CREW = 2  # nodes of which most cables deviate alike, or 1/5 of the group: another crew
CREW_SHARE = 5
RIVALS = 4  # nodes that deviate alike: another way to wire, and no mistake ...
RIVAL_SHARE = 16  # ... or this part of a large group: 1/16


def confidence(m: int, n: int) -> float:
    """Return the chance that one more node agrees, by Laplace's rule of succession.

    3 of 3 and 3 of 4 are no majority, 31 of 32 is 0.94, and nothing is ever certain.
    """
    return (m + 1) / (n + 2)


def is_majority(m: int, n: int) -> bool:
    """Return True if `m` of `n` are enough to call the others odd."""
    return n >= RIVALS and confidence(m, n) >= MAJORITY


def surprise(m: int, n: int, alternatives: float) -> float:
    """Return how unlikely it is, in bits, that nodes wired at random agree so well.

    Each node has that many equally probable ways to be wired. The first node sets the pattern, and
    which of the nodes agree is not given in advance.
    """
    if m < 1 or alternatives < 1:
        return 0.0
    return (m - 1) * log2(alternatives) - log2(comb(n, m))


def is_habit(rivals: int, n: int) -> bool:
    """Return True if so many of `n` nodes deviate alike that it is no mistake."""
    return rivals >= max(RIVALS, n / RIVAL_SHARE)


def is_crew(nodes: int, n: int) -> bool:
    """Return True if nodes that are wired alike, but not like the others, are no single mistakes.

    One cable that is off like another's is likelier than all cables of two nodes.
    """
    return nodes >= max(CREW, n / CREW_SHARE)
