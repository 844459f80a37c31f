"""Repeated layers of a traced program as one loop: found by proof, not by the names of classes."""
