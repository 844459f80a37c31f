"""Products, suppression of boxes, steps of optimizers."""

import itertools

import jax
import numpy as np
import pytest

import anyjax
from anyjax.errors import DataDependent
from tests.onnx.with_onnxruntime import assert_agrees, node, run
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=5)

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


SHAPES = [
    ((4,), (4,)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((2, 3, 4), (4, 7)),
    ((5, 2, 3, 4), (2, 4, 3)), ((3, 4), (5, 4, 3)), ((1, 2, 3, 4), (5, 1, 4, 3)),
]  # fmt: skip


@pytest.mark.parametrize("a,b", SHAPES)
def test_matmul(a, b):
    assert_agrees("MatMul", {"A": normal(*a), "B": normal(*b)})


@pytest.mark.parametrize("a,b,c", [*itertools.product([0, 1], [0, 1], [(5,), (3, 1), (1,), None])])
def test_gemm(a, b, c):
    inputs = {
        "A": normal(3, 4).T if a else normal(3, 4),
        "B": normal(4, 5).T if b else normal(4, 5),
    }
    inputs |= {} if c is None else {"C": normal(*c)}
    assert_agrees("Gemm", inputs, transA=a, transB=b, alpha=0.5, beta=0.7)


def test_a_transposed_weight_is_one_product():
    inputs = {"A": normal(3, 4), "B": normal(5, 4)}
    model = anyjax.from_onnx(node("Gemm", inputs, transB=1))
    program = str(jax.make_jaxpr(model.apply)(model.params, *inputs.values()))
    assert "dot_general" in program and "transpose" not in program


@pytest.mark.parametrize(
    "equation,shapes",
    [
        ("bij, bjk -> bik", ((2, 2, 3), (2, 3, 4))),
        ("...ij,...jk->...ik", ((5, 2, 3), (5, 3, 4))),
        ("ii->i", ((3, 3),)),
        ("ij,jk", ((2, 3), (3, 4))),
    ],
)
def test_einsum(equation, shapes):
    inputs = {f"x{i}": normal(*shape) for i, shape in enumerate(shapes)}
    assert_agrees("Einsum", inputs, equation=equation)


def test_det():
    assert_agrees("Det", {"X": normal(3, 4, 4)}, reduction=64)


@pytest.mark.parametrize("centre,most,least", [*itertools.product([0, 1], [0, 3, 99], [None, 0.4])])
def test_suppression(centre, most, least):
    inputs = {
        "boxes": RNG.random((2, 30, 4), np.float32),
        "scores": RNG.random((2, 3, 30), np.float32),
        "most": np.array([most]),
        "overlap": np.array([0.3], np.float32),
    }
    inputs |= {} if least is None else {"least": np.array([least], np.float32)}
    proto = node("NonMaxSuppression", inputs, center_point_box=centre, constants=("most",))
    model = anyjax.from_onnx(proto)
    arrays = [x for name, x in inputs.items() if name != "most"]
    np.testing.assert_array_equal(model.apply(model.params, *arrays), run(proto, inputs)[0])
    if most:
        with pytest.raises(DataDependent, match="how many boxes are left"):
            jax.jit(model.apply)(model.params, *arrays)


def test_momentum_of_two_variables():
    x, y = normal(3), normal(2)
    inputs = {
        "R": np.float32(0.1).reshape(()), "T": np.array(3), "x": x, "y": y, "gx": x, "gy": y,
        "vx": 2 * x, "vy": 2 * y,
    }  # fmt: skip
    how = {"alpha": 0.9, "beta": 0.5, "mode": "nesterov", "norm_coefficient": 0.0}
    op, opsets = "ai.onnx.preview.training::Momentum", {"ai.onnx.preview.training": 1}
    model = anyjax.from_onnx(node(op, inputs, 4, opsets=opsets, **how))
    got = list(model(**inputs).values())
    states = [0.9 * 2 * v + 0.5 * v for v in (x, y)]
    stepped = [v - 0.1 * (v + 0.9 * s) for v, s in zip((x, y), states)]
    assert_close(got, [np.float32(v) for v in (*stepped, *states)])


def test_gemm_of_integers_is_cut_once():
    a = np.int32([[-11]])
    inputs = {"A": a, "B": np.int32([[3]]), "C": a}
    converted = anyjax.from_onnx(node("Gemm", inputs, alpha=0.5, beta=0.5))
    assert converted(*inputs.values()).tolist() == [[-22]]
