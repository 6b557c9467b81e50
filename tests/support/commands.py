"""The commands of docs/install.md, daemon.md and operations.md and of manifests/README.md, and the
tests that run each as it stands there.

In a block every command counts, and so does every command in a runbook. In other text it is what
is between backquotes and has three words or more, since two are mostly the name of a command. Names
in capitals are to be replaced.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
INSTALL, DAEMON = ROOT / "docs/install.md", ROOT / "docs/daemon.md"
OPERATIONS = ROOT / "docs/operations.md"
MANIFESTS = ROOT / "manifests/README.md"
DOCUMENTS = (INSTALL, DAEMON, OPERATIONS, MANIFESTS)
RUNBOOKS = "## What to do when\n"  # of OPERATIONS, to its end

_COMMAND = re.compile(r"(?:.*<<END\n(?s:.*?)\nEND|(?:.*\\\n)*.+)\n")
_PROGRAMS = (
    *("bwagent", "curl", "dmesg", "ethtool", "helm", "kubectl", "lspci", "man", "modprobe"),
    *("nvidia-smi", "perfquery", "pip", "python3", "saquery", "sh", "sminfo", "smpquery"),
    "systemctl",
)

# The module that runs the commands of each block, by its heading.
BLOCKS = {
    "With the chart": "tests/system/kube/test_install_commands.py",
    "With kustomize": "tests/system/kube/test_install_commands.py",
    "Does it work": "tests/system/kube/test_runbooks.py",
    "On a host without Kubernetes": "tests/system/host/test_documented_commands.py",
    "Upgrade": "tests/system/kube/test_install_commands.py",
    "Remove": "tests/system/kube/test_install_commands.py",
    "A component": "tests/system/kube/test_install_commands.py",
    "Captures in CI": "tests/system/host/test_documented_commands.py",
    "Ask an agent": "tests/system/kube/test_runbooks.py",
    "From a Pod": "tests/system/kube/test_daemonset.py",
    "Another host": "tests/system/kube/test_runbooks.py",
    "": "tests/system/kube/test_install_commands.py",  # before the first heading
    "The image": "tests/system/kube/test_registry.py",
    "What a stolen token can do": "tests/system/kube/test_runbooks.py",
    "Under other names": "tests/system/kube/test_runbooks.py",
}


class Promise(NamedTuple):
    """A pattern of what a command prints, and its exit code."""

    pattern: str
    code: int = 0


# Run by test_runbooks.py on a machine with the overlay, and with the chart. The names are those of
# the commands; LEAF is the switch of the one port, rxe0, whose Node is to have 25G and has 10G.
IN_A_SHELL = {
    "kubectl describe daemonset --namespace bwagent bwagent": Promise(
        r"Desired Number of Nodes Scheduled: 1\n(?s:.*)SuccessfulCreate.*Created pod: AGENT"
    ),
    "kubectl describe node NODE": Promise(r"backend\.coreweave\.cloud/speed\.current=10G"),
    "kubectl describe pod --namespace bwagent POD": Promise(r"Successfully assigned bwagent/AGENT"),
    "kubectl events --for node/NODE": Promise(r"Node/NODE"),
    "kubectl logs --namespace bwagent POD": Promise(r'"time": ?"\d{4}-.*"agent started"'),
    "kubectl logs -n bwagent AGENT": Promise(r'"time": ?"\d{4}-.*"agent started"'),
    "kubectl logs -n bwagent AGENT --previous": Promise(r'"time": ?"\d{4}-.*"agent started"'),
    "kubectl get pod -n bwagent -o wide": Promise(r"AGENT +1/1 +Running +1 .* NODE "),
    "kubectl get pod -n bwagent -o wide --field-selector spec.nodeName=NODE": Promise(
        r"AGENT +1/1 +Running +1 .* NODE "
    ),
    "kubectl get daemonset -n bwagent": Promise(r"\nbwagent +1 +1 +1 +1 +1 "),
    "kubectl get daemonset -A -l app.kubernetes.io/name=bwagent": Promise(
        r"\nbwagent +bwagent +1 .*\n(?s:.*)\n?second +bwagent +0 "
    ),
    "kubectl get validatingadmissionpolicy,validatingadmissionpolicybinding": Promise(
        r"validatingadmissionpolicy\S*/bwagent (?s:.*)policybinding\S*/bwagent +bwagent "
    ),
    # The ConfigMap of the plan has another name than the volume.
    "kubectl get configmap -n bwagent": Promise(r"\nbwagent-plans +1 "),
    "kubectl describe configmap -n bwagent CONFIGMAP": Promise(
        r"^Name: +CONFIGMAP\n(?s:.*)\nplan\.csv:\n"
    ),
    "kubectl describe pod -n bwagent AGENT": Promise(
        r"BWAGENT_RUN_PLAN: +/etc/bwagent/plan/plan\.csv\n(?s:.*)\n +Name: +bwagent-plan\n"
    ),
    "kubectl exec -n bwagent ds/bwagent -- bwagent probe": Promise(r"Node NODE: no label changes"),
    "kubectl exec -n bwagent ds/bwagent -- bwagent probe --dry-run": Promise(r"rxe0.* LEAF "),
    "kubectl exec -n bwagent AGENT -- bwagent probe --dry-run": Promise(r"rxe0.* ACTIVE .* LEAF "),
    "kubectl exec -n bwagent AGENT -- bwagent verify": Promise(r"10G of 25G", code=3),
    "kubectl exec -it -n bwagent AGENT -- bwagent cleanup --lost": Promise(
        r"^nothing to remove\n"  # else: tests/unit/kube/test_cleanup.py
    ),
    "kubectl exec -n bwagent AGENT -- bwagent doctor": Promise(r"ok +rdma(?s:.*)ok +lldp"),
    "curl http://NODE:9477/readyz": Promise(r"^ok\n"),
    "bwagent cleanup --foreign": Promise(r"- \S+/neighbors\.current\.x\.device=old, held by"),
    "bwagent cleanup --label-prefix FORMER --ib-label-prefix FORMER --accelerator-label=": Promise(
        r"- FORMER/flavor=roce"
    ),
}
# The same, in the agent's Pod: they observe its host.
IN_THE_POD = {
    "bwagent explain KEY": Promise(r"KEY(?s:.*)Read from\n(?s:.*)rxe0"),
}
# Run by test_documented_commands.py.
ON_A_HOST = (
    "sh capture.sh DIR && tar -czf DIR.tgz DIR",
    "bwagent completion bash >/etc/bash_completion.d/bwagent",
)
VERIFY_WITH_THE_PLAN = (
    "kubectl exec -n bwagent AGENT -- bwagent verify --from-node --plan /etc/bwagent/plan/plan.csv"
)
DELETE_THE_STRAY = "kubectl delete configmap -n bwagent CONFIGMAP"
ELSEWHERE = {
    "bwagent run --events": "tests/system/kube/test_events.py",
    "bwagent doctor --replay SNAPSHOT": "tests/unit/shell/test_doctor.py",
    "bwagent capture --replay DIR --anonymize NEW": "tests/unit/snapshot/test_capture.py",
    VERIFY_WITH_THE_PLAN: "tests/system/kube/test_runbooks.py",
    DELETE_THE_STRAY: "tests/system/kube/test_runbooks.py",
    "bwagent fleet verify --baseline": "tests/system/kube/test_examples.py",
    "bwagent cleanup --all": "tests/system/kube/test_install_commands.py",
    "helm rollback bwagent --namespace bwagent": "tests/system/kube/test_install_commands.py",
    "kubectl apply --server-side --force-conflicts -k manifests/overlays/site": (
        "tests/system/kube/test_install_commands.py"
    ),
    "kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding bwagent-events": (
        "tests/system/kube/test_install_commands.py"
    ),
    "kubectl set image": "tests/system/kube/test_install_commands.py",
    "kubectl bwagent capture NODE": "tests/system/kube/test_daemonset.py",
    "kubectl bwagent capture NODE [FILE|DIR]": "tests/system/kube/test_daemonset.py",
    "kubectl bwagent fleet verify": "tests/system/kube/test_plugin.py",
    "python3 -m release.version": "tests/unit/test_version.py",
}
NO_SYSTEMD = "no systemd is process 1 where tests run; systemd judges the units in test_systemd.py"
NO_HARDWARE = "needs the hardware that it is about, with its driver"
ONE_MORE = "as `pip install .` of a block, with one package more"
NOT_RUN = {
    "kubectl rollout status": "short for the command of the block `Does it work`",
    "systemctl show --property ExecMainStatus bwagent-verify.service": NO_SYSTEMD,
    "systemctl disable --now bwagent-verify.timer": NO_SYSTEMD,
    "pip install '.[zstd]'": ONE_MORE,
    "pip install '.[pcap]'": ONE_MORE,
    "pip install '.[plan]'": ONE_MORE,
    "ethtool --set-priv-flags IF disable-fw-lldp on": NO_HARDWARE,
    "smpquery -C mlx5_0 -D nodedesc 0,1": NO_HARDWARE,
    "smpquery -D nodeinfo 0,1": NO_HARDWARE,
    "nvidia-smi -q | grep -A 4 Fabric": NO_HARDWARE,
    "dmesg": NO_HARDWARE,
    "lspci -s": NO_HARDWARE,
    "perfquery": NO_HARDWARE,
    "ethtool -S": NO_HARDWARE,
}


def blocks(document: Path) -> list[tuple[str, str]]:
    """Return heading and text of each block of shell commands."""
    found = []
    heading = ""
    for part in re.split(r"^(##+ .*)\n", document.read_text(), flags=re.MULTILINE):
        if part.startswith("##"):
            heading = part.lstrip("# ")
        found += [(heading, one) for one in re.findall(r"```sh\n(.*?)```", part, re.DOTALL)]
    return found


def commands(block: str) -> list[str]:
    """Return the commands of a block, each with its continuations and here-document."""
    return _COMMAND.findall(block)


def inline(document: Path) -> set[str]:
    """Return the commands in the text."""
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    text, _, runbooks = prose.partition(RUNBOOKS)
    return {
        command
        for part, fewest in ((text, 3), (runbooks, 1))
        for span in re.findall(r"`([^`]+)`", part)
        if len((command := " ".join(span.split())).split()) >= fewest
        and command.split()[0] in _PROGRAMS
        and command != "bwagent"
    }
