"""Reading and parsing of kernel files: sysfs and procfs."""
