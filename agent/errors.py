"""What can go wrong, by whose fault it is.

    BwagentError
    ├── Malformed     the peer, the kernel or a snapshot sent nonsense
    ├── Unavailable   a door is shut: not there, not permitted, too late
    └── Rejected      the API server said no

Every message is one line that names its subject (a path, an interface, a TLV, a Node).
"""


class BwagentError(Exception):
    """Anything that bwagent reports to a person instead of showing a traceback."""


class Malformed(BwagentError):
    """Bytes or text that do not follow their format; the message names the part and the place."""


class Unavailable(BwagentError):
    """Something outside does not answer, is missing or is not permitted."""


class Rejected(BwagentError):
    """The API server refused a request."""
