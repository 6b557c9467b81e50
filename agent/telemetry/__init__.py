"""Logs, metrics and health of the daemon."""
