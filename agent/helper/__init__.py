"""Short-lived helper processes: the child, its parent's side, the fork server."""
