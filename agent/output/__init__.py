"""An observation as JSON document, table, labels and manifest."""
