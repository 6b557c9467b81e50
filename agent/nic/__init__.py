"""What the driver of a NIC knows: why a link is down, the health of the NIC, its firmware."""
