"""Estimates of a program's memory, arithmetic, communication and time on chips by name."""
