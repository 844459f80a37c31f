"""Weights of few bits in blocks."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import anyjax
from anyjax.errors import Unsupported
from tests.onnx.agree import normal as random
from tests.onnx.with_onnxruntime import assert_agrees, converted, node
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)

MS = "com.microsoft::"
RNG = np.random.default_rng(2)
bytes_of = lambda *shape: RNG.integers(0, 256, shape).astype(np.uint8)


def packed(bits, K, size, N=6):
    """Returns the inputs and the sizes of a MatMulNBits."""
    blocks = -(-K // size)
    inputs = {
        "A": random(2, 3, K),
        "B": bytes_of(N, blocks, size * bits // 8),
        "scales": random(N, blocks),
        "zeros": bytes_of(N, -(-blocks * bits // 8)),
    }
    return inputs, dict(K=K, N=N, bits=bits, block_size=size)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("K, size", [(64, 32), (48, 32), (32, 16)])
def test_matmul_n_bits(bits, K, size):
    inputs, how = packed(bits, K, size)
    whole = dict(reduction=2**12, constants=("B", "scales", "zeros"))
    assert_agrees(MS + "MatMulNBits", inputs, **how, **whole)
    whole = dict(reduction=2**12, constants=("B", "scales", "bias"))
    inputs |= {"zeros": None, "g": None, "bias": random(6)}
    assert_agrees(MS + "MatMulNBits", inputs, **how, **whole)


@pytest.mark.parametrize("bits", [2, 4])
def test_zero_points_that_are_floats(bits):
    inputs, how = packed(bits, 64, 32)
    inputs["zeros"] = random(6, 2)
    constants = ("B", "scales", "zeros")
    assert_agrees(MS + "MatMulNBits", inputs, reduction=2**12, constants=constants, **how)


@pytest.mark.parametrize("zeros", [None, "floats"])
def test_groups_in_any_order(zeros):
    inputs, how = packed(4, 64, 32)
    inputs["zeros"] = None if zeros is None else random(6, 2)
    inputs["g"] = RNG.permutation(np.arange(64) // 32).astype(np.int32)
    assert_agrees(MS + "MatMulNBits", inputs, reduction=2**12, **how)


def test_groups_with_packed_zero_points():
    """onnxruntime's CPU takes 8 for all of them; sorted groups are those without."""
    inputs, how = packed(4, 64, 32)
    want = converted(node(MS + "MatMulNBits", inputs, **how), inputs)
    inputs["g"] = (np.arange(64) // 32).astype(np.int32)
    assert_close(converted(node(MS + "MatMulNBits", inputs, **how), inputs), want, reduction=64)


def test_other_bits_are_refused():
    inputs, how = packed(4, 64, 32)
    with pytest.raises(Unsupported, match="3 bits"):
        converted(node(MS + "MatMulNBits", inputs, **how | dict(bits=3)), inputs)


@pytest.mark.parametrize("kind", [0, 1])
def test_matmul_bnb4(kind):
    inputs = {"A": random(3, 64), "B": bytes_of(64 * 6 // 2), "absmax": abs(random(64 * 6 // 16))}
    how = dict(K=64, N=6, block_size=16, quant_type=kind, constants=("B", "absmax"))
    assert_agrees(MS + "MatMulBnb4", inputs, reduction=64, **how)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_gather_block_quantized(bits, zeros):
    inputs = {
        "data": bytes_of(4, 3, 32 * bits // 8),
        "indices": np.array([[2, 0], [1, 3]]),
        "scales": random(4, 3, 2),
        "zeros": bytes_of(4, 3, 2 * bits // 8) if zeros else None,
    }
    constants = ("data", "scales", "zeros") if zeros else ("data", "scales")
    how = dict(bits=bits, block_size=16, quantize_axis=2, gather_axis=0, constants=constants)
    assert_agrees(MS + "GatherBlockQuantized", inputs, **how)


@pytest.mark.parametrize("kind", [TensorProto.UINT4, TensorProto.INT4])
@pytest.mark.parametrize("axes", [(0, 2), (1, 0), (0, 0)])
def test_gather_of_four_bits(kind, axes):
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    gather, quantize = axes
    shape = [32, 3, 32]
    blocks = [2 if i == quantize else n for i, n in enumerate(shape)]
    low = 0 if kind == TensorProto.UINT4 else -8
    numbers = lambda shape: RNG.integers(low, low + 16, shape).astype(dtype)
    inputs = {"data": numbers(shape), "indices": np.array([2, 0, 1]), "scales": random(*blocks)}
    inputs["zeros"] = numbers(blocks)
    how = dict(block_size=16, gather_axis=gather, quantize_axis=quantize)
    model = node(MS + "GatherBlockQuantized", inputs, constants=("data", "scales", "zeros"), **how)
    wide = lambda x: np.repeat(x.astype(np.float32), 16, quantize)
    full = (inputs["data"].astype(np.float32) - wide(inputs["zeros"])) * wide(inputs["scales"])
    got = anyjax.from_onnx(model)(inputs["indices"])
    assert_close(np.asarray(got), np.take(full, inputs["indices"], gather))
