"""The data sources: each reads a Host and returns a Reading; none raises for what it reads.

agent/sources/observe.py has a row for each.
"""

NAMES = ("rdma", "lldp", "ib", "nvml")  # fields of Observation, and values of --source
