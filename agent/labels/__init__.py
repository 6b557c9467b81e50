"""The label contract: rows, values, encoding, holds."""
