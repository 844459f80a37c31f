"""Evaluating a graph of any framework: keys, origins of values, taps, places of errors."""
