"""What a divided program costs: fusion, memory over time, work."""
