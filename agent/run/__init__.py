"""The resident agent: when to look, when to write, what to hold, and how it says so."""
