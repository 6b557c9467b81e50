"""The items of a long JSON text, whatever the size of the pieces in which it is read."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.fleet import json_items
from agent.fleet.json_items import Item, Items


class Pieces(io.StringIO):
    """A text of which each read gives a few characters."""

    def __init__(self, text: str, size: int) -> None:
        super().__init__(text)
        self._size = size

    def read(self, _size: int | None = -1) -> str:
        return super().read(self._size)


def read(text: str, size: int = 1 << 20) -> list[Item]:
    return list(Items(Pieces(text, size)))


def test_a_list_ends_with_the_rest_of_it() -> None:
    """Its kind may come after the items."""
    text = '{"items": [{"a": 1},\n  {"b": 2}], "kind": "List"}'
    assert read(text) == [
        Item({"a": 1}, 1, 12),
        Item({"b": 2}, 2, 3),
        Item({"kind": "List"}, 1, 1, is_list=True),
    ]


def test_documents_after_one_another() -> None:
    """Lines of JSON, and lists."""
    found = read('{"a": 1}\n\n{"items": 5}\n[7, [8]]\n')
    assert found == [Item({"a": 1}, 1, 1), Item({"items": 5}, 3, 1), Item(7, 4, 2), Item([8], 4, 5)]
    assert read(" \n") == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@pytest.mark.slow
@given(st.lists(values, max_size=4), values, st.integers(1, 7), st.sampled_from([None, 1, 4]))
def test_no_piece_is_too_small(items: list[object], rest: object, size: int, indent: int) -> None:
    """A value may be cut anywhere: within a number, an escape, a name."""
    text = json.dumps({"x": rest, "items": items, "y": rest}, indent=indent)
    *found, last = read(text, size)
    assert [item.value for item in found] == items
    assert (last.value, last.is_list) == ({"x": rest, "y": rest}, True)
    assert read(text) == [*found, last]


@given(values, st.data())
def test_every_truncation_is_malformed(value: object, data: st.DataObject) -> None:
    """It names the place at which the text ends, or begins to be incomplete."""
    text = json.dumps([value, {"a": [1]}], indent=2)
    end = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(Malformed, match=r"line \d+, column \d+: the text ends here"):
        read(text[:end], data.draw(st.integers(1, 9)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("items:\n- a", "line 1, column 1: neither a JSON object nor a list begins here"),
        ('{"a": 1}\n7', "line 2, column 1: neither a JSON object nor a list begins here"),
        ('{"items": [1 2]}', "line 1, column 14: ',' is missing here"),
        ('{"items": [1,\n]}', "line 2, column 1: expecting value"),
        ('{"a": 1,}', "line 1, column 9: a name in double quotes is missing here"),
        ('{"a" 1}', "line 1, column 6: ':' is missing here"),
        ('[{"a": 1}}', "line 1, column 10: ',' is missing here"),
        ('[\n"a\nb"]', "line 2, column 3: invalid control character at"),
        ("[tru]", "line 1, column 2: expecting value"),
        ("[" * 100_000, "line 1, column 2: not readable from here on: maximum recursion depth"),
        ("[" + "9" * 5000 + "]", "line 1, column 2: not readable from here on: Exceeds the limit"),
    ],
)
def test_an_error_names_line_and_column(text: str, reason: str) -> None:
    """Also far from the beginning of the file."""
    with pytest.raises(Malformed) as caught:
        read(text)
    assert str(caught.value).startswith(reason)
    lines = "\n" * 3000
    with pytest.raises(Malformed) as caught:
        read(lines + text, 100)
    line, _, rest = reason.removeprefix("line ").partition(",")
    assert str(caught.value).startswith(f"line {int(line) + 3000},{rest}")


def test_a_value_has_a_greatest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless text is not kept."""
    monkeypatch.setattr(json_items, "MAX_VALUE", 1000)
    with pytest.raises(Malformed, match="line 1, column 2: "):
        read("[[" + "1," * 10_000, 100)
