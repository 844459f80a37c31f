"""The generator itself."""

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from tojax.tensorflow.ops.philox import Stream, halves, seeded, words

R = tf.raw_ops


def test_words_are_tensorflows():
    """With carries from word to word of the counter."""
    key, counter = np.array([2**63 + 5], np.uint64), np.array([2**64 - 2, 2**64 - 1], np.uint64)
    stream = Stream(halves(key)[0], halves(counter).reshape(4))
    want = R.StatelessRandomUniformFullIntV2(
        shape=[40], key=key, counter=counter, alg=1, dtype=tf.uint32
    )
    assert np.array_equal(words(stream, 40).reshape(-1), want)


def test_the_known_answers_of_the_paper():
    """Random123's test vectors for Philox4x32-10: zeros and ones."""
    none, all_ = jnp.zeros(4, jnp.uint32), jnp.full(4, 2**32 - 1, jnp.uint32)
    of_zeros = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    of_ones = [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert words(Stream(none[:2], none), 4).tolist() == [of_zeros]
    assert words(Stream(all_[:2], all_), 4).tolist() == [of_ones]


def test_seeds_become_keys_and_counters():
    for seed in ([3, -7], [0, 2**31 - 1]):
        seed = np.array(seed, np.int32)
        want = [x.numpy() for x in R.StatelessRandomGetKeyCounter(seed=seed)]
        known = seeded(seed)
        traced = jax.jit(lambda x: [w.halves for w in seeded(x)])(seed)
        for mine, word, other in zip(known, traced, want):
            assert np.array_equal(mine, other)
            assert np.array_equal(np.asarray(word).view(np.uint64).reshape(-1), other)


def test_halves_of_narrow_and_of_wide_numbers():
    assert halves(np.array([-2], np.int64)).tolist() == [[2**32 - 2, 2**32 - 1]]
    assert halves(jnp.array([-2])).tolist() == [[2**32 - 2, 2**32 - 1]]
    assert halves(jnp.array([7], jnp.uint32)).tolist() == [[7, 0]]
