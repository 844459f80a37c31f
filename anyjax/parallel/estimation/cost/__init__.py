"""The costs of a divided program: fusion, memory over time, work."""
