"""The data sources: each reads a Host and returns a Reading; none raises for what it reads.

agent/sources/table.py lists them.
"""
