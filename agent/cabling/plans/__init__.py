"""Readers of the plan files of sites; each returns the cables of agent/cabling/plans/model.py."""
