"""Faults, injected and counted: whole agents in simulated time, and an oracle that knows what is true."""
