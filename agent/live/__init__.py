"""The only code that touches sockets, devices and drivers."""
