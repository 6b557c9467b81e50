"""Hostlist expressions: exact names in, the same names out."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.fleet.exports.text import hostlist

EXPRESSIONS = [
    ([], ""),
    (["gpu"], "gpu"),
    (["gpu-7"], "gpu-7"),
    (["gpu-7", "gpu-7"], "gpu-7"),
    ([f"gpu-{number:03}" for number in range(1, 65)], "gpu-[001-064]"),
    (["gpu-1", "gpu-2", "gpu-9", "gpu-10", "gpu-11"], "gpu-[1-2,9-11]"),
    (["gpu-08", "gpu-09", "gpu-10"], "gpu-[08-10]"),
    (["gpu-8", "gpu-9", "gpu-10"], "gpu-[8-10]"),
    (["gpu-8", "gpu-09", "gpu-10"], "gpu-[8,09-10]"),
    (["gpu-1", "gpu-01", "gpu-001"], "gpu-[1,01,001]"),
    (["gpu-0", "gpu-00"], "gpu-[0,00]"),
    (["gpu-099", "gpu-100", "gpu-1000"], "gpu-[1000,099-100]"),
    (["login", "gpu-1", "gpu-2"], "gpu-[1-2],login"),
    (["gpu", "gpu1", "gpu2"], "gpu,gpu[1-2]"),
    (["r1-n1", "r1-n2", "r2-n1"], "r1-n[1-2],r2-n1"),
    (["10", "11"], "10,11"),
    (["x12345678901", "x12345678902"], "x12345678901,x12345678902"),
    (["gpu-1a", "gpu-2a"], "gpu-1a,gpu-2a"),
]


@pytest.mark.parametrize(("names", "expression"), EXPRESSIONS)
def test_expression(names: list[str], expression: str) -> None:
    assert hostlist(names) == expression


@pytest.mark.slow
@given(st.lists(st.from_regex(r"[a-c]{0,2}-?0{0,3}[0-9]{0,3}", fullmatch=True).filter(bool)))
def test_it_expands_to_the_same_names(names: list[str]) -> None:
    """An expression expands to the names that it was made of, and to no others."""
    assert sorted(expanded(hostlist(names))) == sorted(set(names))


def expanded(expression: str) -> list[str]:
    """Return the names of an expression, by the rules of Slurm's manual."""
    found = []
    for prefix, inside in re.findall(r"([^,\[]+)(?:\[([^\]]*)\])?", expression):
        found += [prefix + number for number in numbers(inside)] if inside else [prefix]
    return found


def numbers(inside: str) -> list[str]:
    found = []
    for part in inside.split(","):
        first, _, last = part.partition("-")
        values = range(int(first), int(last or first) + 1)
        found += [f"{value:0{len(first)}}" for value, _ in product(values, "x")]
    return found
