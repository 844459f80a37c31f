"""Branches and loops."""

from anyjax.onnx.control_flow import branches, loops, scans

__all__ = ["branches", "loops", "scans"]
