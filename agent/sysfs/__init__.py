"""The kernel's file trees: read, parsed, and read per device in worker threads."""
