"""The documents are equal to the code where they repeat it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import fill

import click
import yaml

from agent.cli import cli
from agent.labels.table import LABELS
from agent.memory import HOLDS
from agent.node_events import EventReason
from agent.output.table import render
from agent.reasons import AcceleratorReason, HoldReason, NeighborReason, Reason
from tests.support import commands as documented
from tests.support.documents import between
from tests.support.machines import document_of


def test_label_table(repository: Path, update_golden: bool) -> None:
    truth = "".join(f"| `{row.key}` | {row.value} | {row.absent} |\n" for row in LABELS)
    begin = "| key | value | absent |\n|---|---|---|\n"
    assert (
        between(repository / "README.md", begin, "\nA value that", truth, update=update_golden)
        == truth
    )


def test_the_sample_is_what_probe_prints(repository: Path, update_golden: bool) -> None:
    """The ports of the half-failed machine, and the first ones that do not count."""
    printed = render(document_of(repository / "sysfs_fixtures/half-failed"), color=False)
    ports, _, rest = printed.partition("\n\nNVLink\n")
    section = "Backend ports that do not count"
    first_two = rest.partition(f"{section}\n")[2].splitlines(keepends=True)[:3]
    truth = f"{ports}\n...\n{section}\n{''.join(first_two)}"
    begin = "--replay sysfs_fixtures/half-failed\n"
    assert between(repository / "README.md", begin, "```", truth, update=update_golden) == truth


def test_the_sample_of_verify(repository: Path, update_golden: bool) -> None:
    """The README shows the verdict and the findings of a golden output."""
    golden = (repository / "tests/unit/verify/golden/h200-roce.txt").read_text()
    verdict, _, findings, *_ = golden.split("\n\n")
    truth, begin = (
        f"{verdict}\n...\n{findings}\n",
        "--plan tests/unit/verify/golden/h200-roce.csv\n",
    )
    assert between(repository / "README.md", begin, "```", truth, update=update_golden) == truth


def test_the_reasons_of_a_missing_domain(repository: Path, update_golden: bool) -> None:
    """docs/labels.md has every reason with its text, and whether the label is held for it."""
    truth = "".join(f"{row_of(reason)}\n" for reason in AcceleratorReason)
    path, begin = repository / "docs/labels.md", "| reason | meaning | label |\n|---|---|---|\n"
    assert between(path, begin, "\nBits of", truth, update=update_golden) == truth


def test_the_reasons_of_a_missing_neighbor(repository: Path, update_golden: bool) -> None:
    """docs/operations.md has each with its text; what to look at is written by hand."""
    path = repository / "docs/operations.md"
    begin = "| reason | meaning | labels | look at |\n|---|---|---|---|\n"
    end = "\n### A value"
    table = path.read_text().partition(begin)[2].partition(end)[0]
    cells = [[cell.strip() for cell in row.split("|")] for row in table.splitlines()]
    advice = {cell[1].strip("`"): cell[4] for cell in cells}
    truth = "".join(
        f"{row_of(reason)} {advice.get(reason.value, '')} |\n" for reason in NeighborReason
    )
    assert between(path, begin, end, truth, update=update_golden) == truth
    assert all(advice.values())


def row_of(reason: Reason) -> str:
    return f"| `{reason.value}` | {reason.text} | {'held' if reason.holds else 'removed'} |"


def test_how_long_a_value_stays(repository: Path, update_golden: bool) -> None:
    """docs/labels.md has the memory's table of causes."""
    head = "| cause | its part of the speed | its neighbor labels, leaves and ports | its part of "
    begin = f"{head}the leaf group |\n|---|---|---|---|\n"
    truth = "".join(f"| {one.text} | {one.state} | {one.far} | {one.last_far} |\n" for one in HOLDS)
    path = repository / "docs/labels.md"
    assert between(path, begin, "\n`flavor` is", truth, update=update_golden) == truth


def test_the_table_of_hold_reasons(repository: Path, update_golden: bool) -> None:
    """docs/labels.md has every reason for which a label stays, with its text."""
    truth = "".join(f"| `{reason.value}` | {reason.text} |\n" for reason in HoldReason)
    path, begin = repository / "docs/labels.md", "| reason to stay | meaning |\n|---|---|\n"
    assert between(path, begin, "\n- A restart", truth, update=update_golden) == truth


def test_the_readme_is_short(repository: Path) -> None:
    """The README is read in two minutes; the rest stands in docs/. A row of a table is no prose."""
    lines = (repository / "README.md").read_text().splitlines()
    assert sum(not line.startswith("|") for line in lines) <= 113


def test_every_command_is_in_the_readme(repository: Path) -> None:
    readme = (
        (repository / "README.md").read_text().partition("## Commands")[2].partition("\n\n### ")[0]
    )
    assert set(re.findall(r"^\| `bwagent (\w+)", readme, re.MULTILINE)) == set(
        cli.list_commands(click.Context(cli))
    )


def test_ci_runs_the_readmes_test_command(repository: Path) -> None:
    """CI runs the README's first two commands as a stranger, who takes them from the README."""
    commands = re.findall(r"```sh\n(.*?)\n```", (repository / "README.md").read_text(), re.DOTALL)
    assert commands[1] == "sh tests/setup.sh && .venv/bin/nox"
    taken = [one for block in commands for one in block.splitlines() if "tests/setup.sh" in one]
    assert taken == commands[:2]
    assert "/^sh tests\\/setup\\.sh/' README.md" in (repository / ".ci/stranger").read_text()
    assert any(
        line.split()[:1] == [".ci/stranger"]
        for line in (repository / ".ci/run").read_text().splitlines()
    )


def test_the_readmes_first_command_prints_labels(repository: Path) -> None:
    first = re.findall(r"```sh\n(.*?)\n```", (repository / "README.md").read_text(), re.DOTALL)[0]
    arguments = first.rpartition("bin/bwagent ")[2].split()
    done = subprocess.run(
        [sys.executable, "-m", "agent.cli", *arguments],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "backend.coreweave.cloud/speed.current=3200G" in done.stdout


def test_files_that_are_named_exist(repository: Path) -> None:
    """Neither text nor commands of the documents name a file that has moved."""
    documents = [repository / name for name in ("CONTRIBUTING.md", "README.md", "SECURITY.md")]
    for path in [*documents, *sorted((repository / "docs").glob("*.md"))]:
        names = re.findall(
            r"(?<![\w./-])"
            r"((?:agent|tests|docs|benchmarks|manifests|release|sysfs_fixtures)/[\w./-]*[\w/])",
            re.sub(r"\]\([^)]*\)", "", path.read_text()),  # another test follows the links
        )
        for name in names:
            # The module of a new source, and the overlay of a site, are the reader's.
            its_own = name == "agent/sources/x.py" or name.startswith("manifests/overlays/site")
            assert its_own or (repository / name).exists(), (path, name)


def test_names_of_the_contributor_are_in_their_files(repository: Path) -> None:
    """Each `name` in `path`."""
    text = (repository / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`(\w+)`(?: there)? (?:in|of) `([\w./]+\.\w+)`", text)
    assert len(named) > 10
    for name, path in named:
        assert re.search(rf"\b{name}\b", (repository / path).read_text()), (name, path)


def test_the_policy_permits_what_the_agent_writes(repository: Path, update_golden: bool) -> None:
    """Each key of the label table that names no interface."""
    prefixes = {"P": "variables.prefix", "IB": "variables.ibPrefix"}
    keys, names = ["variables.accelerator"], dict[str, None]()
    for row in LABELS:
        family, slash, name = row.key.partition("/")
        if slash and "{if}" not in name:
            keys.append(f"{prefixes[family]} + '/{name}'")
            names[f"'{name}'"] = None
    truth = ""
    for name, texts in (("ownKeys", keys), ("formerNames", [*names])):
        values = ",\n        ".join(texts)
        truth += f"    - name: {name}\n      expression: >-\n        [{values}]\n"
    path = repository / "manifests/base/policy.yaml"
    begin = "the rows that name no interface.\n"
    end = "    - name: foreignLabels\n"
    assert between(path, begin, end, truth, update=update_golden) == truth


def test_the_policy_permits_each_reason_of_an_event(repository: Path, update_golden: bool) -> None:
    """Its message names them, too; the rows of docs/daemon.md are written by hand."""
    *others, last = EventReason
    texts = (
        f"&& event.?reason.orValue('') in {list(map(str, EventReason))})",
        f"bwagent writes Events of type Warning, with reason {', '.join(others)} or {last}",
    )
    indent = " " * 8
    truth = "\n      message: >-\n".join(
        fill(text, 112, initial_indent=indent, subsequent_indent=indent) for text in texts
    )
    path, begin = repository / "manifests/base/policy.yaml", "event.?type.orValue('') == 'Warning'"
    assert between(path, f"{begin}\n", "\n    - ", truth, update=update_golden) == truth
    page = (repository / "docs/daemon.md").read_text()
    assert all(f"\n| `{reason}` | " in page for reason in EventReason)


def test_modules_of_the_architecture_exist(repository: Path) -> None:
    """Also those that docs/architecture.md names without the folder `agent/`."""
    text = (repository / "docs/architecture.md").read_text()
    spans = re.findall(r"`([a-z_]+/[\w/.]*(?:{[\w,]+})?)`", text)
    named = [name for one in spans for name in _expanded(one)]
    assert len(named) > 40
    for name in named:
        here = (repository / "agent" / name, repository / "agent" / f"{name}.py", repository / name)
        assert any(path.exists() for path in here), name


def _expanded(name: str) -> list[str]:
    """Return a/b and a/c for a/{b,c}."""
    folder, _, names = name.removesuffix("}").partition("{")
    return [f"{folder}{one}" for one in names.split(",")]


def test_links_between_documents_lead_somewhere(repository: Path) -> None:
    """Relative links of the README and of docs/ name files and headings that exist."""
    documents = [repository / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    for path in [*documents, *sorted((repository / "docs").glob("*.md"))]:
        prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", prose):
            target, _, heading = link.partition("#")
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), (path, link)
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE) if heading else []
            found = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
            assert not heading or heading in found, (path, link)


def test_the_keys_for_other_programs(repository: Path) -> None:
    """They are labels of the agent, of the site's half, or of Kubernetes."""
    blocks = re.findall(
        r"```yaml\n(.*?)```", (repository / "docs/exports.md").read_text(), re.DOTALL
    )
    assert all(map(yaml.safe_load, blocks))
    keys = re.findall(r"[\w.-]+\.(?:coreweave\.cloud|nvidia\.com)/[\w.-]+", "".join(blocks))
    table = {
        row.key.replace("ACC", "network.topology.nvidia.com/accelerator")
        .replace("IB/", "ib.coreweave.cloud/")
        .replace("P/", "backend.coreweave.cloud/")
        for row in LABELS
    }
    assert keys
    assert {*keys} - {"backend.coreweave.cloud/speed.expected"} <= table


TAGGED = ("README.md", "docs/install.md", "manifests/README.md", "manifests/chart/README.md")


def test_no_command_goes_on_without_a_tag(repository: Path, tmp_path: Path) -> None:
    """Elsewhere than in the checkout's root none writes a file or builds an image with an empty
    tag, also when they are pasted one after the other.
    """
    site, tools = tmp_path / "manifests/overlays/site", tmp_path / "bin"
    for folder in (site, tools):
        folder.mkdir(parents=True)
    python = f'exec {sys.executable} -S "$@"'  # -S: .venv finds the checkout from everywhere
    for tool, text in {"docker": f"touch {tmp_path}/built", "python3": python}.items():
        (tools / tool).write_text(f"#!/bin/sh\n{text}\n")
        (tools / tool).chmod(0o755)
    environment = {"PATH": f"{tools}:{os.defpath}"}
    for name in TAGGED:
        blocks = [text for _, text in documented.blocks(repository / name)]
        commands = [one for text in blocks for one in documented.commands(text) if "TAG" in one]
        assert any("python3 -m release.version" in one for one in commands), name
        assert not any("release.version" in one.partition("\n")[2] for one in commands), name
        for command in commands:
            ran = subprocess.run(
                ["sh", "-c", command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                check=False,
            )
            assert (ran.returncode != 0, ran.stdout) == (True, b""), command
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {tools / "docker", tools / "python3"}


def test_every_command_of_the_documents_is_run() -> None:
    """Each has a test, a runbook's a promise that the test holds it to, or a reason for none."""
    found = {head for document in documented.DOCUMENTS for head, _ in documented.blocks(document)}
    assert found == documented.BLOCKS.keys()
    known = [
        *documented.IN_A_SHELL,
        *documented.IN_THE_POD,
        *documented.ON_A_HOST,
        *documented.ELSEWHERE,
        *documented.NOT_RUN,
    ]
    assert sorted(known) == sorted(set().union(*map(documented.inline, documented.DOCUMENTS)))
    for module in {*documented.BLOCKS.values(), *documented.ELSEWHERE.values()}:
        assert (documented.ROOT / module).is_file()
