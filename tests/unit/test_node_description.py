"""Names of InfiniBand nodes, as seen in public listings of ibswitches, ibnetdiscover and
iblinkinfo.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import node_description as nodedesc

TEXTS = [
    (b"MF0;L90.1.3:MQM9700/U1" + bytes(42), "MF0;L90.1.3:MQM9700/U1"),
    (b"x" * 64, "x" * 64),
    (b"host01 mlx5_0\0garbage behind the end", "host01 mlx5_0"),
    (b"  padded \n\0", "padded"),
    (b"caf\xc3\xa9", "caf\u00e9"),
    (b"caf\xe9", r"caf\xe9"),
    (b"a\x1b[2Jb\x7f", r"a\x1b[2Jb\x7f"),
    ("a\u202eb".encode(), r"a\xe2\x80\xaeb"),
    (b"", ""),
    (bytes(64), ""),
]

NAMES = [
    ("MF0;L90.1.3:MQM9700/U1", "L90.1.3"),
    ("MF0;switch-9625d4:MSB7800/U1", "switch-9625d4"),
    ("MF0;x800:Q3400_RA/U2", "x800-U2"),
    ("MF0;mamba-2132:Q3400_RA/U1/RT", "mamba-2132-RT"),
    ("MF0;mamba-2132:Q3400_RA/U4/RT", "mamba-2132-U4-RT"),
    ("MF0;sw06:N5400_LD/U1", "sw06"),
    ("MF0;sw06:N5400_LD//U2/", "sw06-U2"),
    ("MF0;ib0-is5200:IS5200/L01/U1", "ib0-is5200-L01"),
    ("MF0;ib0-is5200:IS5200/S02/U1", "ib0-is5200-S02"),
    ("MF0;switch-01", "switch-01"),
    ("MF0;a:b:MQM9700/U1", "a:b"),
    ("MF0;:MQM9700/U1", None),
    ("MF0;", None),
    ("Quantum Mellanox Technologies", None),
    ("SwitchIB Mellanox Technologies", None),
    ("SwitchX -  Mellanox Technologies", None),
    ("Infiniscale-IV Mellanox Technologies", None),
    ("MT47396 Infiniscale-III Mellanox Technologies", None),
    ("MT53000 Mellanox Technologies", None),
    ("ISR9024D Voltaire", None),
    ("", None),
    ("leaf-07", "leaf-07"),
    ("Row 4 / leaf 2", "Row 4 / leaf 2"),
    ("host01 mlx5_0", "host01 mlx5_0"),
    ("host01 HCA-1", "host01 HCA-1"),
]


@pytest.mark.parametrize(("field", "text"), TEXTS)
def test_a_node_string_is_text_up_to_the_first_nul(field: bytes, text: str) -> None:
    """Unprintable characters are escaped."""
    assert nodedesc.text(field) == text


@pytest.mark.parametrize(("description", "name"), NAMES)
def test_a_name_is_what_somebody_chose(description: str, name: str | None) -> None:
    """Factory text is no name, and the first ASIC needs no number."""
    assert nodedesc.switch_name(description) == name


@given(st.binary(max_size=64))
def test_any_node_string_is_printable_and_named_or_not(field: bytes) -> None:
    text = nodedesc.text(field)
    assert text.isprintable()
    assert nodedesc.switch_name(text) != ""
