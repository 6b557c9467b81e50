"""From an empty node and a registry to a labeled Node, by the words of manifests/README.md."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support import registry
from tests.support.kube.agents import an_agent, install
from tests.support.kube.cluster import Cluster
from tests.support.kube.controllers import controllers
from tests.support.kube.machine import Machine, push
from tests.support.kube.manifests import MANIFESTS, NO_IMAGE, TAG, site_overlay
from tests.support.kube.worker import CONTROLLERS, GPU, NODE, SPEED, Worker, lay_devices, missing
from tests.support.real_parts import lacks, require

ITS = "registry.example.com"  # the registry in the README
P = "backend.coreweave.cloud/"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run an empty registry; its address."""
    require(lacks("docker-registry") or missing())
    with registry.registry(tmp_path_factory.mktemp("registry") / "registry") as address:
        yield address


@pytest.fixture(scope="module")
def empty(
    address: str,  # noqa: ARG001 - its parts are required first
    fresh: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Worker]:
    """A machine without any image of the agent."""
    devices = lay_devices(tmp_path_factory.mktemp("empty"))
    with controllers(fresh, *CONTROLLERS), Machine(fresh, NODE, None, GPU) as machine:
        install(fresh, "sysfs")
        yield Worker(fresh, machine, devices, an_agent(fresh, "mighty"))


def section(language: str, address: str) -> str:
    """Return the block of the README's section on the image, with this registry."""
    text = (MANIFESTS / "README.md").read_text().partition("## The image")[2].partition("\n## ")[0]
    (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    block = block.replace("${TAG:?}", TAG).replace("newTag: TAG", f"newTag: {TAG}")
    block = block.replace("USER", registry.USER).replace("PASSWORD", registry.PASSWORD)
    return str(block).replace(ITS, address)


def commands(address: str) -> list[list[str]]:
    lines = section("sh", address).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines]


def test_an_empty_node(empty: Worker, address: str, tmp_path: Path) -> None:
    """Built, pushed and pulled under one name, with the secret; the Node is labeled."""
    tag, build, pushed, namespace, secret = commands(address)
    assert " ".join(tag) == "TAG=$(python3 -m release.version)"
    assert build[:4] == ["docker", "build", "-f", "Containerfile"]
    assert pushed == ["docker", "push", build[5]]
    push(build[5], f"{registry.USER}:{registry.PASSWORD}")
    assert namespace == ["kubectl", "create", "namespace", "bwagent"]  # which `install` has made
    empty.cluster.kubectl(*secret[1:])

    kustomization = yaml.safe_load(section("yaml", address))
    base = MANIFESTS / "overlays/own" / kustomization["resources"][0]
    kustomization["resources"] = [os.path.relpath(base, tmp_path)]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    empty.roll_out(str(tmp_path), BWAGENT_RUN_SOURCE="rdma", BWAGENT_RUN_BACKEND_DEVICE="rxe0")
    empty.until("it is ready", lambda: empty.is_ready() and empty.labels(P) == SPEED)
    assert empty.state()["image"] == build[5]


def test_a_node_without_the_secret(empty: Worker, address: str, tmp_path: Path) -> None:
    """Another image of the same registry is not pulled without the password."""
    name = f"{address}/bwagent-other"
    push(f"{name}:{TAG}", f"{registry.USER}:{registry.PASSWORD}")
    images = {"images": [{"name": NO_IMAGE, "newName": name}]}
    empty.roll_out(str(site_overlay(tmp_path, "sysfs", images)))
    empty.until("the pull is refused", lambda: "ErrImagePull" in str(empty.state().get("state")))
