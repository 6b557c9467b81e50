"""bwagent: observe a node's backend network, render labels, apply what changed."""

__version__ = "0.4.0.dev0"
