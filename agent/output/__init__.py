"""An observation as a JSON document, and that document as table, labels, JSON and manifest."""
