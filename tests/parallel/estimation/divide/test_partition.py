"""Programs divided over meshes: what is communicated, and what lies where."""

import jax
import jax.numpy as jnp
import pytest

from anyjax.parallel.estimation.cost.lifetimes import find_peak
from anyjax.parallel.estimation.cost.work import count_work
from anyjax.parallel.estimation.divide.combine import combine
from anyjax.parallel.estimation.divide.nodes import program_of
from anyjax.parallel.estimation.divide.partition import COLLECTIVES, divide

pytestmark = pytest.mark.sample(every=2)

SHAPES = (16, 8), (8, 32), (32, 8)
ARRAYS = [jax.ShapeDtypeStruct(s, jnp.float32) for s in SHAPES]
ROWS = (("data",), ())
WHOLE = ((), ())


def mlp(x, up, down):
    """Columns beside rows."""
    return jax.nn.relu(x @ up) @ down


def parts(function, arrays, mesh, places, outputs=(), weights=(False, True, True)):
    program = program_of(jax.make_jaxpr(function)(*arrays))
    return divide(program, mesh, places, outputs, weights)


def moved(part):
    """Collectives and their bytes."""
    return [
        (node.name, node.params["axes"], part.bytes(node.outs[0]))
        for node in part.program.nodes
        if node.name in COLLECTIVES
    ]


def test_megatron():
    places = [ROWS, ((), ("model",)), (("model",), ())]
    part = parts(mlp, ARRAYS, {"data": 2, "model": 4}, places)
    assert moved(part) == [("all-reduce", ("model",), 8 * 8 * 4)]
    assert count_work(part).products["float32"] == 2 * (8 * 8 * 8 + 8 * 8 * 8)


def test_convolutions_multiply_no_zeros():
    """Those between the inputs of a transposed one, which is the gradient of one with strides."""
    layout = ("NCHW", "OIHW", "NCHW")
    plain = lambda x, w: jax.lax.conv_general_dilated(
        x, w, (2, 2), ((0, 0), (0, 0)), dimension_numbers=layout
    )
    arrays = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((2, 3, 8, 8), (5, 3, 2, 2))]
    places = [((),) * 4] * 2
    flops = lambda f: sum(
        count_work(parts(f, arrays, {}, places, weights=(0, 1))).products.values()
    )
    once = 2 * (2 * 5 * 4 * 4) * 3 * 2 * 2
    assert flops(plain) == once
    assert flops(jax.grad(lambda x, w: plain(x, w).sum())) == once


def test_fsdp_gathers_weights():
    part = parts(mlp, ARRAYS, {"data": 8}, [ROWS, ((), ("data",)), (("data",), ())])
    gathered = "all-gather", ("data",), 8 * 32 * 4
    assert moved(part) == [gathered, gathered]


def test_gradients_of_divided_weights_are_scattered():
    def step(x, up, down):
        loss = lambda *weights: jnp.square(mlp(x, *weights)).sum()
        return [w - 0.1 * g for w, g in zip((up, down), jax.grad(loss, (0, 1))(up, down))]

    places = [ROWS, ((), ("data",)), (("data",), ())]
    found = moved(parts(step, ARRAYS, {"data": 8}, places, places[1:]))
    assert sorted(kind for kind, *_ in found) == ["all-gather"] * 2 + ["reduce-scatter"] * 2


def test_an_axis_of_one_device_divides_nothing():
    part = parts(mlp, ARRAYS, {"data": 1}, [WHOLE] * 3)
    assert moved(part) == []


def test_loops_count_their_rounds():
    """What is carried lies as the body leaves it; a step's work is done in each round."""

    def layers(x, ups, downs):
        return jax.lax.scan(lambda x, w: (mlp(x, *w), None), x, (ups, downs))[0]

    stacks = [jax.ShapeDtypeStruct((6, *s), jnp.float32) for s in SHAPES[1:]]
    places = [ROWS, ((), (), ("model",)), ((), ("model",), ())]
    part = parts(layers, [ARRAYS[0], *stacks], {"data": 2, "model": 4}, places)
    done = count_work(part)
    assert done.communication == {("all-reduce", ("model",)): (6, 6 * 8 * 8 * 4)}
    assert done.products["float32"] == 6 * 2 * (8 * 8 * 8 + 8 * 8 * 8)


def test_independent_sums_are_one():
    def both(x, a, b):
        return x @ a + x @ b

    shapes = [(16, 8), (8, 4), (8, 4)]
    arrays = [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]
    places = [((), ("model",)), (("model",), ()), (("model",), ())]
    part = combine(parts(both, arrays, {"model": 4}, places))
    assert count_work(part).communication == {("all-reduce", ("model",)): (1, 2 * 16 * 4 * 4)}


def test_a_chain_needs_two_buffers():
    """One that is read, one that is written, however long it is; elementwise needs none."""

    def chain(x, w):
        for _ in range(5):
            x = jnp.sin(x @ w) + 1
        return x @ w

    arrays = [jax.ShapeDtypeStruct((4, 4), jnp.float32)] * 2
    part = parts(chain, arrays, {}, [WHOLE] * 2, weights=[False, True])
    assert find_peak(part).temporaries == 2 * 4 * 4 * 4


def test_matrices_of_small_numbers_are_opened_one_by_one():
    """Where each is used, though the program opens all of them first."""

    def layers(x, *small):
        for w in [jnp.sin(s.astype(jnp.float32)) for s in small]:
            x = x @ w
        return x

    arrays = [jax.ShapeDtypeStruct((4, 64), jnp.float32)]
    arrays += [jax.ShapeDtypeStruct((64, 64), jnp.int8)] * 6
    part = parts(layers, arrays, {}, [WHOLE] * 7, weights=[False, *[True] * 6])
    assert find_peak(part).temporaries == 64 * 64 * 4 + 2 * 4 * 64 * 4
    assert find_peak(part).largest[0][1:4] == ((64, 64), "float32", "sin")


UNKNOWN = [("fft", lambda x: jnp.fft.fft(x)), ("cholesky", jnp.linalg.cholesky)]


@pytest.mark.parametrize(("name", "function"), UNKNOWN)
def test_what_has_no_rule_is_told(name, function):
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    part = parts(function, [x], {"data": 2}, [ROWS], weights=[False])
    assert part.unknown <= {name} and (part.unknown or all(p == () for p in part.specs[0][1:]))
