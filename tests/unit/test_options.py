"""The flags of `bwagent run`: defaults, times, environment variables."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from agent.cli import cli
from agent.commands import run
from agent.daemon.schedule import Settings
from agent.fleet.command import fleet
from agent.options import check_tls, duration, unknown


def parsed(*words: str) -> dict[str, Any]:
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


def test_defaults_of_the_schedule_are_those_of_its_flags() -> None:
    """They stand twice, since `--help` does not load the daemon."""
    flags = {name: parsed()[name] for name in Settings.__slots__ if name != "look"}
    assert Settings() == Settings(**flags)


@pytest.mark.parametrize(
    ("flag", "least"),
    [("min-interval", 1), ("resync", 300), ("gpu-interval", 1), ("port-interval", 0.1)],
)
def test_times_have_bounds(monkeypatch: pytest.MonkeyPatch, flag: str, least: float) -> None:
    """One below is an error that names flag and bound, from the environment as well."""
    assert parsed(f"--{flag}", f"{least}s")[flag.replace("-", "_")] == least
    with pytest.raises(click.UsageError) as caught:
        parsed(f"--{flag}", f"{least * 0.9:g}s")
    assert re.search(rf"--{flag}.*is not a time from {least}s", caught.value.format_message())
    monkeypatch.setenv(f"BWAGENT_RUN_{flag.replace('-', '_').upper()}", "0")
    with pytest.raises(click.UsageError) as caught:
        given()
    assert re.search(rf"--{flag}.*'0' is not a time from {least}s", caught.value.format_message())


def test_a_caller_may_have_other_bounds() -> None:
    """They are an argument, no setting."""
    with run.make_context("run", ["--resync", "1s"], obj={"resync": 1.0}) as context:
        assert context.params["resync"] == 1.0


@pytest.mark.parametrize("flag", ["cert", "key", "client-ca"])
def test_tls_needs_a_certificate_and_its_key(flag: str) -> None:
    """The error names the flag that is alone."""
    with pytest.raises(click.UsageError, match=f"^--metrics-{flag}: TLS needs both"):
        check_tls(parsed(f"--metrics-{flag}", "/tls/file"))
    check_tls(parsed("--metrics-cert", "a", "--metrics-key", "b", "--metrics-client-ca", "c"))
    check_tls(parsed())
    with pytest.raises(click.UsageError, match=r"^--metrics-cert: --metrics-address is empty"):
        check_tls(parsed("--metrics-cert", "a", "--metrics-key", "b", "--metrics-address", ""))


@pytest.mark.parametrize("name", ["BWAGENT_EXCLUDE_DEVICES", "BWAGENT_HOLD"])
@pytest.mark.parametrize("words", [("run",), ("probe",), ("explain", "flavor")])
def test_an_unknown_variable_for_all_commands_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, words: tuple[str, ...]
) -> None:
    """So is one whose flag belongs to one command; its own ones are checked, too."""
    own = f"BWAGENT_{words[0].upper()}_LABLE_PREFIX"
    for one in (name, own):
        monkeypatch.setenv(one, "1")
    with pytest.raises(click.UsageError) as caught:
        given(*words)
    text = caught.value.format_message()
    assert f"no such setting: {name}" in text
    assert f"no such setting: {own}" in text


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("BWAGENT_FLEET_VERIFY_SELECTR", True),
        ("BWAGENT_FLEET_SELECTOR", True),
        ("BWAGENT_FLEET_EXPORT_SELECTOR", False),
        ("BWAGENT_VERIFY_PLAN", False),
    ],
)
def test_a_command_of_a_group_has_variables_of_its_own(
    monkeypatch: pytest.MonkeyPatch, name: str, is_own: bool
) -> None:
    """Those of its siblings, and of a command of its own name outside the group, are not."""
    monkeypatch.setenv(name, "x")
    context = click.Context(cli, info_name="bwagent", auto_envvar_prefix="BWAGENT")
    for command in (fleet, fleet.commands["verify"]):
        context = click.Context(command, context, command.name)
    assert unknown(context) == ([f"no such setting: {name}"] if is_own else [])


def test_a_variable_of_a_flag_that_the_command_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pod has the variables for all commands, and `explain` does not read each."""
    monkeypatch.setenv("BWAGENT_FORMER_LABEL_PREFIXES", "a.example")
    assert given("explain", "flavor")["key"] == "flavor"


@pytest.mark.parametrize("flag", ["exclude-device", "backend-device"])
def test_a_glob_with_a_comma_is_an_error(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    """No device has such a name; a set of characters may have one."""
    assert parsed(f"--{flag}", "mlx5_[0,1]")[flag.replace("-", "_")] == ("mlx5_[0,1]",)
    with pytest.raises(click.UsageError, match="by spaces in the variable, or repeat the flag"):
        parsed(f"--{flag}", "mlx5_10,mlx5_11")
    monkeypatch.setenv(f"BWAGENT_{flag.upper().replace('-', '_')}", "mlx5_10,mlx5_11")
    with pytest.raises(click.UsageError) as caught:
        given()
    text = caught.value.format_message()
    assert re.search(f"'--{flag}'.*'mlx5_10,mlx5_11' has a comma", text)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("run", "BWAGENT_OPENVSWITCH"),
        ("run", "BWAGENT_RUN_VERBOSE"),
        ("probe", "BWAGENT_PROBE_DIFF"),
    ],
)
def test_a_variable_of_a_switch(monkeypatch: pytest.MonkeyPatch, command: str, name: str) -> None:
    """It is true or false in any of the usual words."""
    monkeypatch.setenv(name, "maybe")
    with pytest.raises(click.UsageError) as caught:
        given(command)
    assert caught.value.format_message().endswith(": 'maybe' is neither true nor false")
    for text, value in (("true", True), ("0", False), ("Yes", True), ("off", False)):
        monkeypatch.setenv(name, text)
        assert given(command)[name.rpartition("_")[2].lower()] is value


@pytest.mark.parametrize(
    "name",
    [
        *("BWAGENT_PROBE_OUTPUT", "BWAGENT_TEST_NVML", "BWAGENT_SERVICE_HOST", "BWAGENT_PORT"),
        *("BWAGENT_SERVICE_PORT_HTTP", "BWAGENT_PORT_9477_TCP_ADDR"),
    ],
)
def test_variables_that_are_no_settings_of_the_command(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Those of another command, of the tests, and of a Kubernetes Service named bwagent."""
    monkeypatch.setenv(name, "anything")
    assert given()["hold"] == 600.0


# The flags that decide labels, with two values of their variables.
DECIDING = {
    "label_prefix": ("a.example", "b.example"),
    "ib_label_prefix": ("a.example", ""),
    "accelerator_label": ("a.example/x", ""),
    "former_label_prefixes": ("a.example b.example\n", " c.example"),
    "exclude_device": ("mlx5_8 mlx5_9", "mlx5_7"),
    "backend_device": ("mlx5_0", "mlx5_1 mlx5_2"),
    "sysfs_root": ("/proc", "/dev"),
    "nvml_library": ("/lib/a.so", "/lib/b.so"),
    "source": ("rdma lldp", "rdma"),
    "openvswitch": ("1", "0"),
}


@pytest.mark.parametrize("command", ["run", "probe", "capture", "cleanup"])
@pytest.mark.parametrize("flag", DECIDING)
def test_one_variable_for_all_commands(
    monkeypatch: pytest.MonkeyPatch, command: str, flag: str
) -> None:
    """A flag that decides labels has one for all commands; the command's own one wins."""
    if flag not in {parameter.name for parameter in of_name(command).params}:
        return
    words = ("folder",) if command == "capture" else ()
    common, own = DECIDING[flag]
    monkeypatch.setenv(f"BWAGENT_{flag.upper()}", common)
    values = [given(command, *words)[flag]]
    monkeypatch.setenv(f"BWAGENT_{command.upper()}_{flag.upper()}", own)
    values.append(given(command, *words)[flag])
    assert values == [_value(flag, common), _value(flag, own)]


def test_an_empty_variable_of_the_command_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the flag may be empty."""
    monkeypatch.setenv("BWAGENT_EXCLUDE_DEVICE", "mlx5_8")
    monkeypatch.setenv("BWAGENT_RUN_EXCLUDE_DEVICE", "")
    assert given()["exclude_device"] == ("mlx5_8",)


def test_a_flag_beats_both_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line is the nearest."""
    monkeypatch.setenv("BWAGENT_LABEL_PREFIX", "a.example")
    monkeypatch.setenv("BWAGENT_RUN_LABEL_PREFIX", "b.example")
    assert given("run", "--label-prefix", "c.example")["label_prefix"] == "c.example"


def of_name(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command
    return command


def given(command: str = "run", *words: str) -> dict[str, Any]:
    group = cli.make_context("bwagent", [command], auto_envvar_prefix="BWAGENT")
    with group, of_name(command).make_context(command, list(words), parent=group) as context:
        return dict(context.params)


def _value(flag: str, text: str) -> Any:
    if flag == "openvswitch":
        return text == "1"
    is_list = flag in {"former_label_prefixes", "exclude_device", "backend_device", "source"}
    return tuple(text.split()) if is_list else text


@pytest.mark.parametrize("variable", ["BWAGENT_RUN_FORMER_LABEL_PREFIXES", "BWAGENT_LABEL_PREFIX"])
def test_a_wrong_variable_names_the_value(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "B.example")
    with pytest.raises(click.UsageError, match=r"B\.example"):
        given()


def test_the_first_wrong_flag_is_the_error() -> None:
    with pytest.raises(click.UsageError) as caught:
        parsed("--resync", "x", "--hold", "y")
    message = caught.value.format_message()
    assert "--resync" in message
    assert "--hold" not in message


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("1.5m", 90.0), ("1h", 3600.0), ("0s", 0.0), ("720h", 2592e3)],
)
def test_times(text: str, seconds: float) -> None:
    """A number, and perhaps a unit."""
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1 h", "1h\n", *["s", "-1", "1d", "1e3", "721h", "nan", "٣"]])
def test_no_times(text: str) -> None:
    """Negative, in other units, longer than 30 days, or no number; the error names the limits."""
    with pytest.raises(click.BadParameter, match="is not a time from 0s to 720h"):
        duration(text)
