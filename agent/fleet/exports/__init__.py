"""The topology of a fleet in the formats of schedulers, and its wiring in those of other tools."""
