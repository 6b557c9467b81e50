"""The JSON schemas of the documents that the commands print: docs/*.schema.json."""

from __future__ import annotations

import json
from pathlib import Path

from jsonschema import Draft202012Validator

DOCS = Path(__file__).parents[2] / "docs"


def validator(command: str) -> Draft202012Validator:
    """Return the validator of a command's document."""
    return Draft202012Validator(json.loads((DOCS / f"{command}.schema.json").read_text()))
