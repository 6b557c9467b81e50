"""All Nodes of a cluster: read, compared with a plan or with their own pattern, exported."""
