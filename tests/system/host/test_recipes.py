"""Commands of docs/exports.md that other programs run, over Nodes of agents with --tiers."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from agent.infiniband.fabric_memory import NOTHING, TreeAnswer, merge, text
from tests.support.real_parts import lacks, require
from tests.support.subnets import SHAPES


def test_the_switches_of_a_node_for_nvidia_s_check(repository: Path) -> None:
    """Each list of BackendSwitchFabricCheck has the GUIDs of the switches; a Node without the
    annotation is left out.
    """
    require(lacks("jq"))
    document = (repository / "docs/exports.md").read_text()
    (program,) = re.findall(r"kubectl get nodes -o json \| jq '(.*?)'", document, re.DOTALL)
    subnet = SHAPES["three tiers"].make()
    name, *_ = subnet.pods
    answer, leaves = subnet.tiers(subnet.leaves(name)), subnet.leaves(name)
    memory = merge(NOTHING, TreeAnswer(leaves, answer, subnet.names), 1_800_000_000)
    annotations = {"backend.coreweave.cloud/fabric": text(memory)}
    items = [{"metadata": {"name": name, "annotations": annotations}}, {"metadata": {"name": "x"}}]
    command = ["jq", program]
    done = subprocess.run(
        command, input=json.dumps({"items": items}), check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == [
        {
            "node_id": name,
            "fabric": {
                "leaf_switch_ids": sorted(leaves),
                "spine_switch_ids": sorted(answer.tier_1),
                "core_switch_ids": [answer.tier_2],
            },
        }
    ]
