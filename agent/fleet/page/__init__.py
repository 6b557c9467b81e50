"""The page of `fleet verify -o html`: worklist, wiring matrix and pictures of each group."""
