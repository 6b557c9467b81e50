"""Doors to the kernel, over real kernels and real peers."""
