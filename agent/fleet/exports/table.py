"""The formats of `fleet export`, by name.

A format is a pure function of a fleet and of the prefixes and keys that the operator chose. It
returns an `Exported`: `text` goes to standard output, `notes` to standard error, one line each. An
empty text says that no Node can be exported; the notes say why. Equal fleets give equal texts,
without times and versions, in natural order, so that `diff` shows what changed in the data hall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.fleet.exports.csv_file import csv_rows
from agent.fleet.exports.dot import graph
from agent.fleet.exports.graphml import graphml
from agent.fleet.exports.levels import kai, kueue
from agent.fleet.exports.slinky import manifests
from agent.fleet.exports.slurm import block_conf, tree_conf
from agent.fleet.exports.slurm_yaml import topology_yaml
from agent.fleet.exports.volcano import hypernodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.fleet.exports.exported import Exported
    from agent.fleet.model import Fleet
    from agent.labels.table import Naming

FORMATS: dict[str, Callable[[Fleet, Naming], Exported]] = {
    "csv": csv_rows,
    "dot": graph,
    "graphml": graphml,
    "kai": kai,
    "kueue": kueue,
    "slinky": manifests,
    "slurm": tree_conf,
    "slurm-block": block_conf,
    "slurm-yaml": topology_yaml,
    "volcano": hypernodes,
}
