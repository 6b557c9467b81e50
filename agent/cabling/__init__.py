"""What should be plugged where, and what is: plans, the node document, findings. Pure."""
