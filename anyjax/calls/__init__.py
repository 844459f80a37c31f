"""Calls of a Model: ``model(...)``, ``model.apply``, and the programs that they keep."""
