"""Formats: bytes or text in, values out. Nothing here opens, waits or logs."""
