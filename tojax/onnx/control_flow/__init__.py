"""Branches and loops."""

from tojax.onnx.control_flow import branches, loops, scans

__all__ = ["branches", "loops", "scans"]
