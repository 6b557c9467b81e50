"""The differences between plan and reality, of one node and of a fleet: one finding, one report."""
