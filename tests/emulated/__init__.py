"""A machine with a real RDMA kernel, for hosts that have none."""
