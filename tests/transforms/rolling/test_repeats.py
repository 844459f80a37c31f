"""Where layers repeat."""

import jax.numpy as jnp
import numpy as np

from anyjax.transforms.rolling.repeats import weights
from tests.transforms.rolling.programs import program

X = np.ones((2, 4), np.float32)


def params(*names):
    return {name: np.eye(4, dtype=np.float32) for name in names}


def shapes(found):
    """(rounds, names of the weights of the first round) of each loop."""
    names = found.program.names
    return [
        (loop.rounds, [names[xs[0]] for xs in weights(found.program, loop)]) for loop in found.loops
    ]


def test_layers_between_others():
    """The longest run, whole layers."""

    def run(p, x):
        x = jnp.sin(x @ p["in"])
        for i in range(5):
            x = x + jnp.tanh(x @ p[f"{i}.up"]) @ p[f"{i}.down"]
        return jnp.cos(x @ p["out"])

    names = [f"{i}.{k}" for i in range(5) for k in ("up", "down")]
    assert shapes(program(run, params("in", "out", *names), X)) == [(5, ["0.up", "0.down"])]


def test_every_second_layer():
    """A pattern of two layers."""

    def run(p, x):
        for i in range(6):
            x = (jnp.tanh if i % 2 else jnp.sin)(x @ p[f"{i}.w"])
        return x

    assert shapes(program(run, params(*(f"{i}.w" for i in range(6))), X)) == [(3, ["0.w", "1.w"])]


def test_large_operands_of_some_layers():
    """Two masks by turns: a longer round shares them, rather than a copy for each layer."""

    def run(p, x, masks):
        for i in range(6):
            x = jnp.tanh(masks[i % 2] @ (x @ p[f"{i}.w"]))
        return x

    x, masks = np.ones((64, 4), np.float32), np.ones((2, 64, 64), np.float32)
    found = program(run, params(*(f"{i}.w" for i in range(6))), x, [*masks])
    assert shapes(found) == [(3, ["0.w", "1.w"])]


def test_products_side_by_side_are_no_layers():
    """Nothing flows from one to the next."""
    run = lambda p, x: [jnp.tanh(x @ p[k]) for k in ("q", "k", "v")]
    assert shapes(program(run, params("q", "k", "v"), X)) == []


def test_a_value_that_skips_a_layer():
    """The loop carries it through the layer between."""

    def run(p, x):
        xs = [x, x]
        for i in range(6):
            xs.append(jnp.tanh(xs[-1] @ p[f"{i}.w"]) + xs[-2])
        return xs[-1]

    found = program(run, params(*(f"{i}.w" for i in range(6))), X)
    assert shapes(found) == [(6, ["0.w"])]
    assert [after for after, _ in found.loops[0].carries] == [(2, 0), 0]


def test_a_layer_that_differs_ends_the_loop():
    """Layer 3 has another function in it."""

    def run(p, x):
        for i in range(6):
            x = (jnp.cos if i == 3 else jnp.tanh)(x @ p[f"{i}.w"])
        return x

    assert shapes(program(run, params(*(f"{i}.w" for i in range(6))), X)) == [
        (3, ["0.w"]),
        (2, ["4.w"]),
    ]
