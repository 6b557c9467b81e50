"""What surrounds the commands in an operator's shell."""
