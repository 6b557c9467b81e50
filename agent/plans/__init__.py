"""Readers of the plan files of sites; each returns the cables of agent/plans/model.py."""
