"""Events that trigger an observation: link messages, uevents, port states, signals."""
