"""Names and colors of leaves; the colors as seen with every kind of color vision."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from agent.cabling.seen import SeenEnd
from agent.fleet.model import Fleet, FleetNode, FleetPort, Group, Judged
from agent.fleet.page.lookup import COLORS, TEXTURES, LeafTable
from agent.fleet.page.render import FOLDER
from tests.support import judged
from tests.support.small_fleets import NOW

Rgb = tuple[float, float, float]
STYLE = (FOLDER / "page.css").read_text()
PALETTE = re.findall(r"\.c\d \{ --leaf: #([0-9a-f]{6}) \}", STYLE)
DARK = "14171b"  # what dark cells are mixed with
MIX = 0.30
# Machado, Oliveira, Fernandes (2009), severity 1.0, over linear RGB.
VISION = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
APART = 10.0  # difference in CIE 1976 L*a*b*; 2.3 is just noticeable


def srgb(text: str) -> Rgb:
    red, green, blue = (int(text[at : at + 2], 16) / 255 for at in (0, 2, 4))
    return red, green, blue


def linear(color: Rgb) -> Rgb:
    red, green, blue = (
        one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in color
    )
    return red, green, blue


def times(matrix: tuple[tuple[float, ...], ...], color: Rgb) -> Rgb:
    red, green, blue = (
        sum(factor * one for factor, one in zip(row, color, strict=True)) for row in matrix
    )
    return red, green, blue


def lab(color: Rgb) -> Rgb:
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    x, y, z = (
        (one / of) ** (1 / 3) if one / of > 0.008856 else 7.787 * one / of + 16 / 116
        for one, of in zip(times(to_xyz, color), white, strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def luminance(color: Rgb) -> float:
    return sum(f * one for f, one in zip((0.2126, 0.7152, 0.0722), linear(color), strict=True))


def contrast(one: Rgb, other: Rgb) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(color: Rgb) -> Rgb:
    red, green, blue = (
        MIX * one + (1 - MIX) * dark for one, dark in zip(color, srgb(DARK), strict=True)
    )
    return red, green, blue


@pytest.mark.parametrize("vision", VISION)
def test_colors_are_apart(vision: str) -> None:
    """Any two leaves of a group of eight differ in color, whatever the reader's color vision."""
    seen = [
        lab(tuple(max(0.0, min(1.0, one)) for one in times(VISION[vision], linear(srgb(c)))))  # type: ignore[arg-type]
        for c in PALETTE
    ]
    for one, other in combinations(seen, 2):
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 >= APART


def test_text_is_read_on_every_color() -> None:
    """Text has the contrast of WCAG AA on the cells, light and dark."""
    assert len(PALETTE) == COLORS
    assert f"var(--mix), #{DARK})" in STYLE
    assert f"--mix: {MIX:.0%}" in STYLE
    for color in map(srgb, PALETTE):
        assert contrast(srgb("111111"), color) >= 4.5
        assert contrast(srgb("ffffff"), mixed(color)) >= 4.5


def test_a_rail_has_one_color_in_every_group() -> None:
    """Leaf i of a group has color i, so that a wrong leaf stands out in its column."""
    fleet = judged.fleet(16, 8)
    leaves = LeafTable(fleet)
    for group in fleet.groups:
        assert [leaves[one].color for one in group.leaves] == [f"c{rail}" for rail in range(8)]


def test_a_leaf_of_no_group_is_striped() -> None:
    """A leaf that is no rail's has no rail's color in a group of up to sixteen leaves."""
    fleet = of_names(["a", "b"])
    leaves = LeafTable(fleet._replace(groups=(fleet.groups[0]._replace(leaves=("a",)),)))
    assert leaves["a"].color == "c0"
    assert leaves["b"].color.endswith(" t2")


def test_more_leaves_than_colors() -> None:
    """The same color comes again with another texture, and only then plain again."""
    names = [f"leaf{number:02}" for number in range(COLORS * TEXTURES + 1)]
    colors = [LeafTable(of_names(names))[name].color for name in names]
    assert colors[COLORS : COLORS + 2] == ["c0 t1", "c1 t1"]
    assert len(set(colors)) == COLORS * TEXTURES
    assert colors[-1] == colors[0]


def of_names(names: list[str], ids: list[str] | None = None) -> Judged:
    ends = [SeenEnd(name, "1", None, one) for name, one in zip(names, ids or names, strict=True)]
    ports = tuple(FleetPort(f"mlx5_{at}", far_end=end) for at, end in enumerate(ends))
    switches = tuple(end.switch for end in ends)
    fleet = Fleet((FleetNode("a", ports=ports),), "nodes.json", NOW)
    return Judged(fleet, (), (Group("g", ("a",), switches, None),))


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["leaf01.dc1.example.net", "leaf02.dc1.example.net"], ["leaf01", "leaf02"]),
        (["leaf01.dc1.example.net", "leaf02"], ["leaf01.dc1.example.net", "leaf02"]),
        (["L90.1.3", "L91.1.3"], ["L90.1.3", "L91.1.3"]),
        (["10.0.0.1", "11.0.0.1"], ["10.0.0.1", "11.0.0.1"]),
        ([".example.net", ".example.net"], [".example.net (1)", ".example.net (2)"]),
    ],
)
def test_a_common_domain_is_left_out(names: list[str], shown: list[str]) -> None:
    """The domain that all switches have is not shown; they are still found by the whole name."""
    leaves = LeafTable(of_names(names, ["1", "2"]))
    assert [leaves[one].name for one in ("1", "2")] == shown
    assert leaves["1"] in leaves.named(names[0])
    assert leaves.shown("other") == "other"
    assert leaves.shown(names[0]) == (shown[0] if names[0] != names[1] else names[0])


def test_two_switches_of_one_name() -> None:
    leaves = LeafTable(of_names(["Leaf", "leaf"], ["b83f01", "b83f02"]))
    assert [leaves[one].name for one in ("b83f01", "b83f02")] == ["Leaf (b83f01)", "leaf (b83f02)"]
    assert {leaf.id for leaf in leaves.named("LEAF")} == {"b83f01", "b83f02"}


def test_a_switch_of_two_names() -> None:
    """The most common name is shown; it is found by either, and by its identity."""
    leaves = LeafTable(of_names(["old", "new", "new"], ["b83f01"] * 3))
    assert leaves["b83f01"].name == "new"
    for name in ("old", "new", "B83F01"):
        assert [leaf.id for leaf in leaves.named(name)] == ["b83f01"]
    assert leaves.named("other") == leaves.named(None) == []


def test_a_leaf_that_no_port_sees() -> None:
    """A group may name a leaf that has lost all ports; it goes by its identity."""
    fleet = judged.fleet(2, 2)
    group = fleet.groups[0]._replace(leaves=(*fleet.groups[0].leaves, "b83f"))
    assert LeafTable(fleet._replace(groups=(group,)))["b83f"].name == "b83f"
