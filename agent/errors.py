"""The errors that end in one line for a person instead of a traceback.

    BwagentError
    ├── Malformed     input of a peer, the kernel or a snapshot does not follow its format
    ├── Unavailable   an interface is missing, not permitted, or too slow
    │   └── Pending   a background query has not had its first answer yet
    ├── Rejected      the API server refused a request
    └── Misdirected   the Node is another host than the one that is observed

Every message is one line that names its subject (a path, an interface, a TLV, a Node).
"""


class BwagentError(Exception):
    """The base class: `bwagent` prints its message and exits with code 1."""


class Malformed(BwagentError):
    """Bytes or text that do not follow their format; the message names the part and its place."""


class Unavailable(BwagentError):
    """A facility outside the agent does not answer, is missing, or is not permitted."""


class Pending(Unavailable):
    """A background query has not had its first answer yet; the next observation may have it."""


class Rejected(BwagentError):
    """The API server refused a request."""


class Misdirected(BwagentError):
    """The Node is another host than the observed host; the message says what to do."""


def not_installed(what: str, package: str, extra: str, instead: str = "") -> Unavailable:
    """Return the error for a package of an extra, which is installed with the agent's checkout."""
    return Unavailable(f"{what} needs {package}: pip install '.[{extra}]' in the checkout{instead}")
