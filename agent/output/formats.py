"""One look from end to end: a host observed, its roles and labels worked out, the report printed.

What the commands share. What only one form of output needs is imported in its function.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.labels import encode
from agent.labels.render import render
from agent.labels.table import Naming
from agent.model import Problem, Seen
from agent.output import document as report

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.labels.render import Rendered
    from agent.model import Observation


@dataclass(frozen=True, slots=True)
class Choices:
    """What an operator decides about the report, as opposed to what is observed."""

    backend_devices: tuple[str, ...] = ()  # globs
    excluded_devices: tuple[str, ...] = ()  # globs
    naming: Naming = field(default_factory=Naming)
    node_name: str | None = None


def report_on(
    observation: Observation,
    choices: Choices,
    notes: Iterable[Problem] = (),
    rendered: Rendered | None = None,
) -> dict[str, Any]:
    """The JSON document of an observation; `rendered` are its labels where those held from before count, too."""
    devices = observation.rdma.value if isinstance(observation.rdma, Seen) else ()
    rendered = rendered or render(observation, choices.naming)
    hints = report.hints(observation, _unmatched(choices, [device.name for device in devices]))
    held = [
        Problem("labels", key, None, "kept as it was: it cannot be seen now")
        for key in rendered.held
    ]
    problems = [*hints, *notes, *held, *rendered.problems, *observation.problems]
    node = choices.node_name or (observation.node and observation.node.lower())
    return report.document(observation, rendered, problems, node)


def _unmatched(choices: Choices, names: list[str]) -> list[str]:
    """The device flags that name no device: a typo, or another machine's configuration."""
    flags = (
        ("--exclude-device", choices.excluded_devices),
        ("--backend-device", choices.backend_devices),
    )
    asked = [(flag, glob) for flag, globs in flags for glob in globs]
    return [
        f"{flag} {glob}"
        for flag, glob in asked
        if not any(fnmatchcase(name, glob) for name in names)
    ]


def show(found: dict[str, Any], output: str) -> None:
    """Print a report as `table`, `labels`, `json` or `yaml`."""
    sys.stdout.write(FORMS[output](found))
    sys.stdout.flush()


def _table(found: dict[str, Any]) -> str:
    from agent.output.table import render as table

    colour = (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    return table(found, colour=colour)


def _labels(found: dict[str, Any]) -> str:
    return "".join(f"{key}={value}\n" for key, value in found["labels"].items())


def _json(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=2) + "\n"


def _yaml(found: dict[str, Any]) -> str:
    """A Node manifest that `kubectl apply --server-side` accepts."""
    import yaml

    name = found["node"]
    if not name or encode.prefix_fault(name):
        raise Unavailable(f"{name!r} is no Node name: give one with --node-name")
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": found["labels"]},
    }
    return str(yaml.safe_dump(node, sort_keys=False))


FORMS = {"table": _table, "labels": _labels, "json": _json, "yaml": _yaml}
