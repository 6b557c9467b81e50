"""The commands for an operator's shell."""
