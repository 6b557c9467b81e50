"""Codecs against tables, against spoilt input and against other decoders."""
