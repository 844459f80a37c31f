"""Mathematics of onnxruntime that ONNX has otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyjax
from anyjax.errors import DataDependent, Unsupported
from tests.onnx.agree import normal as random
from tests.onnx.with_onnxruntime import assert_agrees, converted, node
from tests.tolerance import assert_close

MS = "com.microsoft::"
A, B = random(3, 4), random(5, 4)
ONE = np.array(1)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
def test_cdist(metric):
    assert_agrees(MS + "CDist", {"A": A, "B": B}, metric=metric)
    model = anyjax.from_onnx(node(MS + "CDist", {"A": A, "B": A}, metric=metric))
    gradient = jax.grad(lambda x: model.apply(model.params, x, A).sum())(A)
    assert jnp.isfinite(gradient).all()


@pytest.mark.parametrize(
    "op, inputs, how",
    [
        ("Inverse", {"X": random(2, 3, 3)}, {}),
        ("GatherND", {"x": A, "i": np.array([[0, 1], [2, 3]])}, {}),
        ("Pad", {"d": A, "p": np.array([0, 1, 2, 0]), "v": np.float32([2])}, {}),
        ("ExpandDims", {"X": A, "a": np.array(-1, np.int32)}, {}),
        ("Trilu", {"X": A, "k": ONE}, dict(upper=0)),
        ("Range", {"s": ONE, "l": np.array(5)}, {}),
    ],
)
def test_shapes(op, inputs, how):
    constants = tuple(name for name in inputs if name in "pvakslx" and name != "X" and name != "x")
    assert_agrees(MS + op, inputs, reduction=64, constants=constants, **how)


def test_unique_of_known_values():
    inputs = {"x": np.float32([2, 1, 2, 4])}
    assert_agrees(MS + "Unique", inputs, 3, constants=("x",))
    with pytest.raises(DataDependent):
        converted(node(MS + "Unique", inputs, 3), inputs)


def test_what_the_cpu_lacks():
    run = lambda op, inputs, **how: np.asarray(converted(node(MS + op, inputs, **how), inputs)[0])
    number, other = A[..., ::2] + 1j * A[..., 1::2], 2 - 1j
    pair = lambda z: np.stack([z.real, z.imag], -1).astype(np.float32)
    inputs = {"A": pair(number), "B": pair(np.full_like(number, other))}
    assert_close(run("ComplexMul", inputs), pair(number * other))
    assert_close(run("ComplexMulConj", inputs), pair(number * np.conj(other)))
    spectrum = pair(np.fft.rfft(A))
    assert_close(run("Rfft", {"X": A}, signal_ndim=1), spectrum, reduction=16)
    assert_close(run("Irfft", {"X": spectrum}, signal_ndim=1), A, reduction=16)
    infinite = {"A": A, "B": np.float32([np.inf])}
    assert not run("IsAllFinite", infinite) and run("IsAllFinite", {"A": A})
    assert run("IsAllFinite", infinite, isnan_only=1)
    with pytest.raises(Unsupported, match="onesided=0"):
        run("Rfft", {"X": A}, onesided=0)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [[4, 5], [1, 3]])
def test_crop_and_resize(size, mode):
    inputs = {
        "X": random(2, 3, 7, 6),
        "rois": np.float32([[0.1, 0.2, 0.8, 0.9], [-0.2, 0, 1.3, 1]]),
        "of": np.array([1, 0], np.int32),
        "size": np.array(size, np.int32),
    }
    how = dict(extrapolation_value=0.5, mode=mode, constants=("size",))
    assert_agrees(MS + "CropAndResize", inputs, **how)
