"""Models as ONNX's text, and their comparison with onnxruntime."""

import jax
import numpy as np
import onnx
from onnx import numpy_helper, parser

import anyjax
from tests.tolerance import assert_close

rng = np.random.default_rng(0)


def model(text, opset=18, weights=None, ir=8, **domains):
    """Parses ``name (inputs) => (outputs) { nodes }``; ``weights`` are arrays by name."""
    opsets = ", ".join(f'"{k}": {v}' for k, v in {"": opset, **domains}.items())
    proto = parser.parse_model(f"<ir_version: {ir}, opset_import: [{opsets}]>\n{text}")
    for name, array in (weights or {}).items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return proto


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def runtime(proto, *inputs):
    """Returns the outputs of onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {x.name: v for x, v in zip(session.get_inputs(), inputs)})


def agree(proto, *inputs, reduction=16, jitted=True):
    """Fails unless anyjax computes what onnxruntime does; returns the Model."""
    onnx.checker.check_model(proto)
    converted = anyjax.from_onnx(proto)
    if jitted:
        out = converted(*inputs)
    else:
        out = converted.apply(converted.params, *inputs)
    out = list(out.values()) if len(proto.graph.output) > 1 else [out]
    want = runtime(proto, *inputs)
    got = [np.asarray(x) for x in out]
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert_close(x, y.astype(x.dtype), reduction=reduction)
    return converted


def slope(converted, *inputs):
    """Checks both derivatives of the sum of the first output against differences in float64."""
    from jax.test_util import check_grads

    first = lambda *xs: jax.tree.leaves(converted.apply(converted.params, *xs))[0]
    check_grads(first, inputs, order=1, modes=("fwd", "rev"), rtol=2e-2, atol=2e-2)
