"""`bwagent run`: the loop, its schedule, pollers and clock."""
