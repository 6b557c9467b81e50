"""The label contract: rows, values, encoding, rendering, holds."""
