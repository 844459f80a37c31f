"""What a graph keeps between calls: variables and tables."""
