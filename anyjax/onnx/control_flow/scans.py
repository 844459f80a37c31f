"""``Scan``: states that go through slices of tensors, as ``lax.scan``."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.errors import Unsupported
from anyjax.onnx.control_flow.branches import arrays
from anyjax.onnx.core.running import handles


@handles("Scan")
def scan(run, node, inputs):
    count = node.attributes["num_scan_inputs"]
    if node.op.version > 8:
        return _scan(run, node, run.branch_key(node), *_split(arrays(list(inputs)), count))
    if inputs[0] is not None:
        raise Unsupported(
            "Scan of opset 8 with sequence_lens",
            why="its outputs would differ in length",
            do="export the model in opset 9 or newer",
        )
    batched = partial(_scan, run, node, run.branch_key(node))
    return jax.vmap(batched)(*_split(arrays(list(inputs[1:])), count))


def _split(values, count):
    return values[: len(values) - count], values[len(values) - count :]


def _scan(run, node, key, states, sequences):
    body, states_count = node.attributes["body"], len(states)
    directions = node.attributes.get("directions") or node.attributes.get("scan_input_directions")
    rows = len(body.outputs) - states_count
    value = lambda name, number: node.attributes.get(name) or (0,) * number
    axes = value("scan_input_axes", len(sequences))
    xs = [jnp.moveaxis(x, axis, 0) for x, axis in zip(sequences, axes)]
    directions = directions or (0,) * len(xs)
    xs = [jnp.flip(x, 0) if back else x for x, back in zip(xs, directions)]

    def step(states, row):
        i, slices = row
        inner = None if key is None else jax.random.fold_in(key, i)
        out = arrays(run.nested(body, [*states, *slices], inner))
        return out[:states_count], out[states_count:]

    states, ys = lax.scan(step, states, (jnp.arange(len(xs[0]), dtype=jnp.int32), xs))
    backwards = value("scan_output_directions", rows)
    ys = [jnp.flip(y, 0) if back else y for y, back in zip(ys, backwards)]
    out_axes = value("scan_output_axes", rows)
    return [*states, *(jnp.moveaxis(y, 0, axis) for y, axis in zip(ys, out_axes))]
