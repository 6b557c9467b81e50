"""Measurements side by side: each prints medians of one run."""
