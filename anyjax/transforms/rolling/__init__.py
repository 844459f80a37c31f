"""Repeated layers of a traced program as loops, found by proof and not by names of classes."""
