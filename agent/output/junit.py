"""Test suites in the XML of JUnit, as pipelines read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree as ET

from agent.output.layout import MAX_TEXT
from agent.text import visible

FAILURE, ERROR, SKIPPED = "failure", "error", "skipped"
COUNTS = {"failures": FAILURE, "errors": ERROR, "skipped": SKIPPED}


class Case(NamedTuple):
    """One test case."""

    name: str
    element: str | None = None  # FAILURE, ERROR or SKIPPED; None: passed
    message: str = ""


def suite(name: str, host: str, cases: Sequence[Case]) -> ET.Element:
    """Return the suite of a host."""
    host = visible(host, MAX_TEXT)
    kinds = [case.element for case in cases]
    counts = {count: str(kinds.count(element)) for count, element in COUNTS.items()}
    attributes = {"name": name, "hostname": host, "tests": str(len(cases)), **counts}
    parent = ET.Element("testsuite", attributes)
    for case in cases:
        child = ET.SubElement(parent, "testcase", classname=host, name=visible(case.name, MAX_TEXT))
        if case.element:
            ET.SubElement(child, case.element, message=visible(case.message, MAX_TEXT))
    return parent


def suites(name: str, members: Sequence[ET.Element]) -> ET.Element:
    """Return the root of several suites, with their counts added up."""
    totals = {
        count: str(sum(int(suite.attrib[count]) for suite in members))
        for count in ("tests", *COUNTS)
    }
    root = ET.Element("testsuites", {"name": name, **totals})
    root.extend(members)
    return root


def document(root: ET.Element) -> str:
    """Return the file."""
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
