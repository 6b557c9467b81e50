"""Certificates, made by openssl."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(folder: Path, *words: str) -> None:
    """Run a command of openssl in a folder."""
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def made(folder: Path, name: str, *, by: str = "", alias: str = "") -> tuple[Path, Path]:
    """Make NAME.pem and NAME.key; return both.

    It is signed `by` another one of the folder, else by itself, a CA. `alias` is a subjectAltName.
    """
    files = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
    signer = ("-CA", f"{by}.pem", "-CAkey", f"{by}.key") if by else ()
    of_leaf = ("-addext", "basicConstraints=CA:FALSE") if by else ()
    names = ("-addext", f"subjectAltName={alias}") if alias else ()
    openssl(folder, "req", "-x509", *EC, *signer, *files, *of_leaf, *names)
    return folder / f"{name}.pem", folder / f"{name}.key"


def client(folder: Path, *, certified: bool) -> ssl.SSLContext:
    """Return the context of a client that trusts ca.pem, with client.pem or without."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if certified:
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
    return context
