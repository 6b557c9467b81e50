"""The JSON that a child writes, held against the json package."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.helper.terse import dumps

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters())
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(VALUES)
def test_what_is_written_is_read_back(value: object) -> None:
    """Whatever a verb answers arrives as it was."""
    assert json.loads(dumps(value)) == value


@given(st.text(st.characters(categories=["Cs", "Cc", "So"])))
def test_everything_odd_is_escaped(text: str) -> None:
    """It means what the json package's means, lone surrogates and all."""
    assert dumps(text).isascii()
    assert json.loads(dumps(text)) == json.loads(json.dumps(text))


@pytest.mark.parametrize(
    "value", [b"bytes", float("nan"), float("-inf"), {1: "no text"}, [{"deep": object()}]]
)
def test_what_json_has_not_is_refused(value: object) -> None:
    """A verb that answers anything else is a bug, not a quiet conversion."""
    with pytest.raises(TypeError):
        dumps(value)
