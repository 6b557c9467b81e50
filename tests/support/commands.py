"""The commands of docs/install.md and docs/operations.md, and the tests that run each as it stands
there.

In a block every command counts; in the text what is between backquotes and has three words or more,
since two are mostly the name of a command. Names in capitals are to be replaced.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALL, OPERATIONS = ROOT / "docs/install.md", ROOT / "docs/operations.md"
DOCUMENTS = (INSTALL, OPERATIONS)

_COMMAND = re.compile(r"(?:.*<<END\n(?s:.*?)\nEND|(?:.*\\\n)*.+)\n")
_PROGRAMS = (
    *("bwagent", "curl", "dmesg", "ethtool", "helm", "kubectl", "lspci", "man", "modprobe"),
    *("nvidia-smi", "perfquery", "pip", "python3", "sh", "smpquery", "systemctl"),
)

# The module that runs the commands of each block, by its heading.
BLOCKS = {
    "With the chart": "tests/system/kube/test_install_commands.py",
    "With kustomize": "tests/system/kube/test_install_commands.py",
    "Does it work": "tests/system/kube/test_daemonset.py",
    "On a host without Kubernetes": "tests/system/host/test_documented_commands.py",
    "Upgrade": "tests/system/kube/test_install_commands.py",
    "Remove": "tests/system/kube/test_install_commands.py",
    "A component": "tests/system/kube/test_install_commands.py",
    "Captures in CI": "tests/system/host/test_documented_commands.py",
    "From a Pod": "tests/system/kube/test_daemonset.py",
}
# Run by test_install_commands.py on an API server with an overlay, where no kubelet is.
IN_A_CLUSTER = (
    "kubectl describe daemonset --namespace bwagent bwagent",
    "kubectl describe node NODE",
    "kubectl events --for node/NODE",
    "kubectl get daemonset -n bwagent",
    "kubectl get daemonset -A -l app.kubernetes.io/name=bwagent",
    "kubectl get validatingadmissionpolicy,validatingadmissionpolicybinding",
    "kubectl get pod -n bwagent -o wide",
    "kubectl get pod -n bwagent -o wide --field-selector spec.nodeName=NODE",
    "bwagent explain KEY",
    "bwagent probe --dry-run",
    "bwagent cleanup --foreign",
    "bwagent cleanup --lost",
    "bwagent cleanup --label-prefix FORMER --ib-label-prefix FORMER --accelerator-label=",
    "bwagent cleanup --all",
)
# Run by test_daemonset.py with a Pod of the agent.
ON_A_NODE = (
    "kubectl describe pod --namespace bwagent POD",
    "kubectl logs --namespace bwagent POD",
    "kubectl logs -n bwagent AGENT",
    "kubectl exec -n bwagent ds/bwagent -- bwagent probe --dry-run",
    "kubectl exec -n bwagent AGENT -- bwagent probe --dry-run",
    "kubectl exec -n bwagent AGENT -- bwagent verify",
)
# Run by test_documented_commands.py.
ON_A_HOST = (
    "sh capture.sh DIR && tar -czf DIR.tgz DIR",
    "bwagent completion bash >/etc/bash_completion.d/bwagent",
)
ELSEWHERE = {
    "bwagent run --events": "tests/system/kube/test_events.py",
    "helm rollback bwagent --namespace bwagent": "tests/system/kube/test_install_commands.py",
    "kubectl bwagent capture NODE": "tests/system/kube/test_daemonset.py",
    "kubectl bwagent capture NODE [FILE|DIR]": "tests/system/kube/test_daemonset.py",
    "kubectl bwagent fleet verify": "tests/system/kube/test_plugin.py",
}
NO_SYSTEMD = "no systemd is process 1 where tests run; systemd judges the units in test_systemd.py"
NO_HARDWARE = "needs the hardware that it is about, with its driver"
PUBLISHED = "installs from a package index, where this version is not"
NOT_RUN = {
    "kubectl rollout status": "short for the command of the block `Does it work`",
    "systemctl show --property ExecMainStatus bwagent-verify.service": NO_SYSTEMD,
    "systemctl disable --now bwagent-verify.timer": NO_SYSTEMD,
    "pip install 'bwagent[zstd]'": PUBLISHED,
    "pip install 'bwagent[pcap]'": PUBLISHED,
    "pip install '.[plan]'": "as `pip install .` of the block, with one package more",
    "ethtool --set-priv-flags IF disable-fw-lldp on": NO_HARDWARE,
    "smpquery -C mlx5_0 -D nodedesc 0,1": NO_HARDWARE,
    "smpquery -D nodeinfo 0,1": NO_HARDWARE,
    "nvidia-smi -q | grep -A 4 Fabric": NO_HARDWARE,
    "kubectl logs --previous": "needs an agent that has restarted; the rest is kubectl's",
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
    spans = (" ".join(one.split()) for one in re.findall(r"`([^`]+)`", prose))
    return {one for one in spans if one.count(" ") > 1 and one.split()[0] in _PROGRAMS}
