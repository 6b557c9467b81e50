"""The flags of `bwagent run`: what is not given, and all that is wrong at once."""

from __future__ import annotations

from typing import Any

import click
import pytest

from agent.cli import run


def parsed(*words: str) -> dict[str, Any]:
    """What `run` is called with."""
    with run.make_context("run", list(words)) as context:
        return dict(context.params)


def test_what_is_not_given_is_none_or_its_default() -> None:
    """As for every other command: no value of click's own gets through."""
    plain = (type(None), bool, int, float, str, tuple)
    assert {name: value for name, value in parsed().items() if not isinstance(value, plain)} == {}
    assert parsed()["nvml_library"] is None
    assert parsed()["hold"] == 600.0
    assert parsed("--nvml-library", "/lib/a.so", "--hold", "1m")["nvml_library"] == "/lib/a.so"
    assert parsed("--hold", "1m")["hold"] == 60.0


def test_all_that_is_wrong_is_said_at_once() -> None:
    """An unknown flag, a word too many, two values: one error."""
    with pytest.raises(click.UsageError) as caught:
        parsed("--hold", "soon", "--nosuch", "--source", "lldb")
    assert all(word in caught.value.format_message() for word in ("soon", "--nosuch", "lldb"))
    with pytest.raises(click.UsageError, match="unexpected argument: more"):
        parsed("more")
