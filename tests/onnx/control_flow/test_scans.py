"""Scans along any axis, in both directions."""

import numpy as np

from tests.onnx.agree import agree, model, normal, slope

SCAN = """m (float[2] s, float[2, 5] x) => (float[2] last, float[2, 5] rows)
{ last, rows = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [1],
    scan_input_directions: ints = [1], scan_output_axes: ints = [1],
    body = b (float[2] a, float[2] e) => (float[2] c, float[2] d)
    { u = Mul(a, w) c = Add(u, e) d = Tanh(c) }> (s, x) }"""


def test_axes_directions_and_gradient():
    converted = agree(model(SCAN, weights={"w": np.float32([0.5, 0.9])}), normal(2), normal(2, 5))
    slope(converted, normal(2), normal(2, 5))
