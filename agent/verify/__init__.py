"""Compare the cables that a plan gives a node with those that are observed."""
