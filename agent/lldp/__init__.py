"""LLDP: frames, neighbors over time, packet sockets."""
