"""Makes the files of a release: `nox -s release`."""
