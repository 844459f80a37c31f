"""Rotary positions and biases of distances."""

import math

import numpy as np
import pytest

from tests.onnx.agree import normal as random
from tests.onnx.with_onnxruntime import assert_agrees, converted, node
from tests.tolerance import assert_close

MS = "com.microsoft::"


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(2, 5, 16), (2, 2, 5, 8)], ids=["flat", "heads"])
@pytest.mark.parametrize("positions", [np.array([3]), np.arange(10).reshape(2, 5) % 7])
def test_rotary_embedding(interleaved, shape, positions):
    inputs = {"x": random(*shape), "p": positions, "cos": random(10, 4), "sin": random(10, 4)}
    assert_agrees(MS + "RotaryEmbedding", inputs, interleaved=interleaved)
    part = inputs | {"cos": random(10, 2), "sin": random(10, 2)}
    how = dict(interleaved=interleaved, num_heads=2, rotary_embedding_dim=4)
    assert_agrees(MS + "RotaryEmbedding", part, **how)


def test_gemma_rotary_embedding():
    emb, *parts = random(2, 5, 8), *random(4, 2, 3, 5, 8)
    inputs = dict(zip(("emb", "q", "q_rot", "k", "k_rot"), (emb, *parts)))
    got = converted(node(MS + "GemmaRotaryEmbedding", inputs, 2), inputs)
    cos, sin = np.cos(emb)[:, None], np.sin(emb)[:, None]
    want = [parts[0] * cos + parts[1] * sin, parts[2] * cos + parts[3] * sin]
    assert_close([np.asarray(x) for x in got], want, reduction=4)


def bucket_of(distance, both):
    """Returns T5's bucket of a distance, of 32 of which the farthest begins at 20."""
    count = 16 if both else 32
    first = count if both and distance > 0 else 0
    far = abs(distance) if both else max(-distance, 0)
    if far < count // 2:
        return first + far
    share = math.log(far / (count // 2)) / math.log(20 / (count // 2))
    return first + min(count // 2 + int(share * (count - count // 2)), count - 1)


@pytest.mark.parametrize("both", [False, True])
def test_relative_position_bias(both):
    table, length = random(32, 4), np.array(40)
    inputs = {"table": table, "queries": length, "keys": length}
    how = dict(max_distance=20, is_bidirectional=int(both), constants=("queries", "keys"))
    got = converted(node(MS + "RelativePositionBias", inputs, **how), inputs)[0]
    places = [[bucket_of(key - query, both) for key in range(40)] for query in range(40)]
    assert_close(np.asarray(got), np.moveaxis(table[np.array(places)], -1, 0)[None])
