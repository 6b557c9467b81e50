"""`bwagent verify` over the machine folders: its outputs, its exit codes, its errors."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from agent.verify.command import FORMATS
from tests.support.documents import NODE_CODES, validator
from tests.support.snapshots import FIXTURES, Finished, bwagent, complaint

GOLDEN = Path(__file__).parent / "golden"
PLANS = sorted(path for path in GOLDEN.iterdir() if path.suffix in {".csv", ".yaml", ".json"})
H200 = FIXTURES / "h200-roce"
every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)


def compare(plan: Path, *words: str, **options: Any) -> Finished:
    """Run the command over the machine that the plan is named after."""
    machine = str(FIXTURES / plan.stem)
    return bwagent("verify", "--replay", machine, "--plan", plan.name, *words,
                   cwd=plan.parent, **options)  # fmt: skip


of_golden = cache(compare)  # the runs over the plans of the repository: each once


@pytest.mark.slow
@every_plan
def test_table(plan: Path, update_golden: bool) -> None:
    """The table of each plan is the one that was worked out for it, and fits 80 columns."""
    golden = plan.with_suffix(".txt")
    printed = of_golden(plan).stdout.decode()
    if update_golden:
        golden.write_text(printed)
    assert printed == golden.read_text()
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.slow
@every_plan
def test_json_follows_its_schema(plan: Path) -> None:
    """docs/verify.schema.json; the code of every finding is documented."""
    found = json.loads(of_golden(plan, "-o", "json").stdout)
    validator("verify").validate(found)
    assert {one["code"] for one in found["findings"]} <= NODE_CODES.keys()
    first, _, _ = of_golden(plan).stdout.decode().partition("\n\n")
    assert found["verdict"] == first.replace("\n ", "")


@pytest.mark.slow
@every_plan
def test_junit_and_csv_have_every_finding(plan: Path) -> None:
    ids = {one["id"] for one in json.loads(of_golden(plan, "-o", "json").stdout)["findings"]}
    suite = ET.fromstring(of_golden(plan, "-o", "junit").stdout)  # noqa: S314 - our own
    failed = [case for case in suite if len(case)]
    counts = Counter(element.tag for case in suite for element in case)
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert suite.get(attribute) == str(counts[tag])
    assert {case.get("name", "").rpartition(" ")[2] for case in failed} == ids
    rows = list(csv.DictReader(io.StringIO(of_golden(plan, "-o", "csv").stdout.decode())))
    assert {row["id"] for row in rows} == ids


def test_the_table_of_codes(repository: Path) -> None:
    """docs/verify.md has every code with its severity and meaning."""
    text = (repository / "docs/verify.md").read_text()
    for code, row in NODE_CODES.items():
        assert f"| `{code}` | {row.severity} | {row.meaning} |" in text


def test_the_table_of_tolerances(repository: Path) -> None:
    from agent.cabling.names import TOLERANCES

    text = (repository / "docs/verify.md").read_text()
    assert all(f"| `{name}` | {meaning} |" in text for name, meaning in TOLERANCES.items())


@cache
def plan_of_h200() -> str:
    return bwagent("verify", "--replay", str(H200), "--write-plan", "csv").stdout.decode()


def written_plan(folder: Path, change: tuple[str, str] = ("", "")) -> Path:
    text, path = plan_of_h200(), folder / f"{H200.name}.csv"
    path.write_text(text.replace(*change) if change[0] else text)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code", "npd"),
    [
        (("", ""), 0, 0),
        (("leaf-su1-r1,", "leaf-su1-r9,"), 3, 1),
        (("leaf-su1-r1,swp1s0,swp1s0", "leaf-su1-r1,Ethernet1,Ethernet1"), 1, 2),
    ],
)
def test_exit_codes(tmp_path: Path, change: tuple[str, str], code: int, npd: int) -> None:
    """0 as planned, 3 differences, 1 a cable that cannot be compared; others for --npd."""
    plan = written_plan(tmp_path, change)
    assert compare(plan).returncode == code
    line = compare(plan, "--npd")
    assert (line.returncode, line.stdout.count(b"\n"), line.stderr) == (npd, 1, b"")
    assert len(line.stdout.decode()) <= 81


def test_npd_says_why_it_does_not_know(tmp_path: Path) -> None:
    """No plan, an unreadable one, no RDMA device: unknown, in one line."""
    bad = tmp_path / "plan.csv"
    bad.write_text("nothing\n")
    for words in (
        ("--replay", str(H200)),
        ("--replay", str(H200), "--plan", str(bad)),
        ("--replay", str(FIXTURES / "driver-reloading"), "--plan", str(written_plan(tmp_path))),
    ):
        done = bwagent("verify", "--npd", *words)
        assert (done.returncode, done.stdout.count(b"\n")) == (2, 1)


@pytest.mark.parametrize(
    ("words", "env", "named"),
    [
        (("--plan", "/no/plan.csv", "--npd"), {}, "/no/plan.csv"),
        (("--npd", "--baseline", "/no/known.csv"), {}, "/no/known.csv"),
        (("--npd", "--nosuch"), {}, "--nosuch"),
        (("--nosuch",), {"BWAGENT_VERIFY_NPD": "true"}, "--nosuch"),
        (("--npd",), {"BWAGENT_VERIFY_PLN": "x"}, "BWAGENT_VERIFY_PLN"),
        (("--npd", "--replay", "/no"), {}, "--plan"),
    ],
)
def test_npd_gets_a_line_of_wrong_flags(
    words: tuple[str, ...], env: dict[str, str], named: str
) -> None:
    """A plugin's standard error is not read, and an empty line says nothing."""
    done = bwagent("verify", *words, env=env)
    assert (done.returncode, done.stdout.count(b"\n"), done.stderr) == (2, 1, b"")
    assert named in done.stdout.decode()
    assert len(done.stdout.decode()) <= 81


def test_wrong_flags_without_npd_are_an_error() -> None:
    """Behind `--` it is no flag."""
    for words in (("--plan", "/no/plan.csv"), ("--nosuch", "--", "--npd")):
        assert complaint(bwagent("verify", *words, env={"BWAGENT_VERIFY_NPD": "0"}), 2)


def test_what_is_not_verified_is_an_error(tmp_path: Path) -> None:
    """A pipeline has the document in a file, and sees why the exit code is 1."""
    plan = written_plan(tmp_path, ("leaf-su1-r1,swp1s0,swp1s0", "leaf-su1-r1,Ethernet1,Ethernet1"))
    done = compare(plan, "-o", "json")
    document = json.loads(done.stdout)
    node = document["node"]
    assert (done.returncode, document["outcome"]) == (1, "unverified")
    assert done.stderr.decode() == f"bwagent: {node}: not verified: 1 finding of severity unknown\n"


def test_a_plan_of_other_nodes(tmp_path: Path) -> None:
    plan = written_plan(tmp_path, ("h200-roce-12", "h200-roce-120"))
    line = complaint(compare(plan))
    assert "h200-roce-12" in line
    assert "0 rows" in line


def test_ignore_and_tolerances(tmp_path: Path) -> None:
    """Both from the command line; an unknown tolerance is a usage error."""
    wrong = written_plan(tmp_path, ("leaf-su1-r1,", "leaf-su1-r9,"))
    assert compare(wrong, "--ignore", "rocep26s0").returncode == 0
    upper = written_plan(tmp_path, ("leaf-su1-r", "LEAF-SU1-R"))
    assert compare(upper).returncode == 0
    assert compare(upper, "--no-tolerance", "case").returncode == 3
    assert "--no-tolerance" in complaint(compare(upper, "--no-tolerance", "luck"), 2)


def test_hca_map(tmp_path: Path) -> None:
    """The numbers of the site; a bad file is one line."""
    plan = written_plan(tmp_path)
    text = plan.read_text()
    mapping = ["port,hca-name"]
    for number, row in enumerate(text.splitlines()[1:]):
        interface = row.split(",")[1]
        text = text.replace(interface, f"HCA {(number + 3) % 8}")
        mapping.append(f"HCA {(number + 3) % 8},{interface}")
    plan.write_text(text)
    assert b"numbering unknown, give --hca-map" in compare(plan).stdout.replace(b"\n    ", b" ")
    path = tmp_path / "map.csv"
    path.write_text("\n".join(mapping))
    assert compare(plan, "--hca-map", str(path)).returncode == 0
    path.write_text("a,b\n")
    assert f"{path}, row 1: no column port" in complaint(compare(plan, "--hca-map", str(path)))


def test_cells_are_no_formulas(tmp_path: Path) -> None:
    """A name that begins as a formula does not reach a spreadsheet as one."""
    plan = written_plan(tmp_path, ("leaf-su1-r1,", '"=HYPERLINK(""x"")",'))
    printed = compare(plan, "-o", "csv").stdout.decode()
    cells = [cell for row in csv.reader(io.StringIO(printed)) for cell in row]
    assert '\'=HYPERLINK("x")' in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]


@pytest.mark.slow
def test_hostile_names_are_printable(tmp_path: Path) -> None:
    """Control characters of a plan reach no terminal and no XML."""
    plan = written_plan(tmp_path, ("leaf-su1-r1,", "leaf\x1b[2J\x00,".replace("\x00", "")))
    for output in FORMATS:
        printed = compare(plan, "-o", output).stdout
        assert b"\x1b" not in printed
        if output == "junit":
            ET.fromstring(printed)  # noqa: S314 - our own


def test_help_has_every_flag_that_counts() -> None:
    """Those of the sources, too; it leaves out what changes nothing here."""
    text = bwagent("verify", "--help").stdout.decode()
    assert {"--source", "--openvswitch"} <= {*text.split()}
    assert "--nvml-library" not in text


def test_there_is_nothing_to_write() -> None:
    """A plan without a row is an error; one with rows is printed without a word."""
    assert bwagent("verify", "--replay", str(H200), "--write-plan", "csv").stderr == b""
    for machine, kind in (("cpu-node", "labels"), ("azure-ndv5-vm", "csv")):
        done = bwagent("verify", "--replay", str(FIXTURES / machine), "--write-plan", kind)
        assert "nothing to write" in complaint(done)


REPLAY, PLAN, WRITE = ("--replay", str(H200)), ("--plan", "h200-roce.csv"), ("--write-plan", "csv")
PARTS = (*PLAN, *WRITE, "--split", "parts")
USAGE = [
    # The command line, and what the error names.
    (REPLAY, "--plan"),  # a replay never asks a Node by itself
    ((*REPLAY, *PLAN, "--npd", "-o", "json"), "--npd excludes --output"),
    *(
        ((*REPLAY, "--from-node", flag, PLAN[1]), f"{flag} needs --plan")
        for flag in ("--plan-format", "--hca-map")
    ),
    *(
        ((*REPLAY, *WRITE, *words), words[0])
        for words in (
            PLAN,
            ("--npd",),
            ("--ignore", "x"),
            ("--no-tolerance", "case"),
            ("-o", "json"),
        )
    ),
    ((*REPLAY, *WRITE, "--write-baseline", "known.csv"), "--write-plan compares nothing"),
    *(
        ((*PARTS, *words), words[0])
        for words in (
            *(("--from-node",), ("--ignore", "x"), ("--npd",), REPLAY),
            *(("--node-name", "gpu-1"), ("--no-wait",)),
        )
    ),
    *(
        ((*REPLAY, "--split", *words), "--split")
        for words in (
            ("parts",),
            ("parts", *WRITE),
            ("parts", *PLAN),
            ("parts", *PLAN, "--write-plan", "labels"),
            ("", *PLAN, *WRITE),
        )
    ),
]


@pytest.mark.parametrize(("words", "named"), USAGE)
def test_a_flag_that_would_be_ignored_is_an_error(
    tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    """The exit code is 2, and no part of a plan is written."""
    written_plan(tmp_path)
    done = bwagent("verify", *words, cwd=tmp_path)
    assert (done.returncode, named in (done.stderr + done.stdout).decode()) == (2, True)
    assert not (tmp_path / "parts").exists()


@pytest.mark.slow
def test_a_list_of_kubeconfigs(tmp_path: Path) -> None:
    """KUBECONFIG may name several files; the one that is there makes the Node the default."""
    config = tmp_path / "config"
    config.write_text("{}")
    env = {"KUBECONFIG": f"{tmp_path / 'none'}:{config}"}
    assert "nothing to compare with" not in complaint(bwagent("verify", "--no-wait", env=env))


def test_ignored_cables_are_counted(tmp_path: Path) -> None:
    """To ignore all of them is a wish: the exit code is 0, and the first line says so."""
    words = ("--replay", str(H200), "--plan", str(written_plan(tmp_path)), "--ignore")
    for glob, told in (
        ("*", "0 of 0 cables as planned; 8 ignored"),
        ("rocep26s0", "7 of 7 cables as planned; 1 ignored"),
    ):
        done = bwagent("verify", *words, glob)
        assert done.returncode == 0
        assert told in done.stdout.decode().partition("\n\n")[0].replace("\n ", "")
