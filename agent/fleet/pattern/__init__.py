"""The pattern of a fleet: its groups, the majority in each, and the cables that break it."""
