"""Snapshots: a machine written to a folder or an archive, made anonymous, and replayed."""
