"""The Node: what is on it, what must change, and how that is asked of the API server."""
