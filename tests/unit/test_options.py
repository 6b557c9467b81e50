"""The flags of `bwagent run`: defaults, times, and one error for all wrong settings."""

from __future__ import annotations

from typing import Any

import click
import pytest

from agent.cli import run
from agent.options import check_tls, duration


def parsed(*words: str) -> dict[str, Any]:
    """Return the keyword arguments of `run`."""
    with run.make_context("run", list(words)) as context:
        return dict(context.params)


def test_flags_have_plain_defaults() -> None:
    """No sentinel of click gets through, and flags override defaults."""
    plain = (type(None), bool, int, float, str, tuple)
    assert {name: value for name, value in parsed().items() if not isinstance(value, plain)} == {}
    assert parsed()["nvml_library"] is None
    assert parsed()["hold"] == 600.0
    assert parsed("--nvml-library", "/lib/a.so", "--hold", "1m")["nvml_library"] == "/lib/a.so"
    assert parsed("--hold", "1m")["hold"] == 60.0


def test_all_wrong_settings_are_one_error() -> None:
    """An unknown flag and two wrong values, or an argument."""
    with pytest.raises(click.UsageError) as caught:
        parsed("--hold", "soon", "--nosuch", "--source", "lldb")
    assert all(word in caught.value.format_message() for word in ("soon", "--nosuch", "lldb"))
    with pytest.raises(click.UsageError, match="unexpected argument: more"):
        parsed("more")


@pytest.mark.parametrize("flag", ["cert", "key", "client-ca"])
def test_tls_needs_a_certificate_and_its_key(flag: str) -> None:
    """The error names the flag that is alone."""
    with pytest.raises(click.UsageError, match=f"^--metrics-{flag}: TLS needs both"):
        check_tls(parsed(f"--metrics-{flag}", "/tls/file"))
    check_tls(parsed("--metrics-cert", "a", "--metrics-key", "b", "--metrics-client-ca", "c"))
    check_tls(parsed())


def test_an_unknown_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable with the prefix of the command that no flag reads was meant for it."""
    monkeypatch.setenv("BWAGENT_RUN_HOLDD", "60")
    with (
        pytest.raises(click.UsageError, match="no such setting: BWAGENT_RUN_HOLDD"),
        run.make_context("run", [], auto_envvar_prefix="BWAGENT_RUN"),
    ):
        pass


@pytest.mark.parametrize("command", ["RUN_", ""])
def test_former_prefixes(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """They come from the flag, from the command's variable, or from that of all commands."""

    def former(*words: str) -> tuple[str, ...]:
        with run.make_context("run", list(words), auto_envvar_prefix="BWAGENT_RUN") as context:
            return tuple(context.params["former_label_prefixes"])

    assert former() == ()
    monkeypatch.setenv("BWAGENT_FORMER_LABEL_PREFIXES", "")
    assert former() == ()
    monkeypatch.setenv("BWAGENT_FORMER_LABEL_PREFIXES", "other.example")
    monkeypatch.setenv(f"BWAGENT_{command}FORMER_LABEL_PREFIXES", " a.example  b.example\n")
    assert former() == ("a.example", "b.example")
    assert former("--former-label-prefix", "c", "--former-label-prefix", "d") == ("c", "d")
    with pytest.raises(click.UsageError, match=r"B\.example"):
        former("--former-label-prefix", "B.example")


def test_errors_follow_the_order_of_the_command_line() -> None:
    """Errors are reported in the order of the arguments."""
    with pytest.raises(click.UsageError) as caught:
        parsed("--resync", "x", "--hold", "y")
    message = caught.value.format_message()
    assert message.index("--resync") < message.index("--hold")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("1.5m", 90.0), ("1h", 3600.0), ("0s", 0.0), ("720h", 2592e3)],
)
def test_times(text: str, seconds: float) -> None:
    """A number, and perhaps a unit."""
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1d", "1 h", "1e3", "721h", "\u0663", "nan"])
def test_no_times(text: str) -> None:
    """Negative, in other units, longer than 30 days, or no number; the error names the limits."""
    with pytest.raises(click.BadParameter, match="is not a time from 0s to 720h"):
        duration(text)
