"""Transceiver modules of Ethernet ports: vendor, temperature, optical power, alarms."""
