"""A SavedModel's loop, differentiated: python examples/savedmodel_gradient.py picture.svg"""

import sys
import tempfile

import jax
import tensorflow as tf
from jax import numpy as jnp
from matplotlib import pyplot as plt

import anyjax


class Throw(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([2]), tf.TensorSpec([])])
    def __call__(self, velocity, wind):
        places, r, v = tf.TensorArray(tf.float32, 100), tf.zeros(2), velocity
        for i in tf.range(100):  # in steps of 1/50 s; a while loop in the file
            air = v - tf.stack([wind, 0.0])
            v += 0.02 * (tf.constant([0.0, -9.81]) - 0.05 * tf.norm(air) * air)
            r += 0.02 * v
            places = places.write(i, r)
        return places.stack()


folder = tempfile.mkdtemp()
tf.saved_model.save(Throw(), folder)
model = anyjax.from_tensorflow(folder)
target = jnp.array([12.0, 3.0])
miss = lambda *args: model.apply({}, *args)[-1] - target
jacobian = jax.jit(jax.jacfwd(miss))  # through the whole loop
for wind in (-8.0, 0.0, 8.0):
    velocity = jnp.array([8.0, 8.0])
    for _ in range(6):  # Newton's method
        velocity -= jnp.linalg.solve(jacobian(velocity, wind), miss(velocity, wind))
    print(f"wind {wind:.0f} m/s: {jnp.linalg.norm(miss(velocity, wind)):.0e} m from the target")
    plt.plot(*model(velocity, wind).T, label=f"wind {wind:.0f} m/s")
plt.plot(*target, "k*", ms=15)
plt.legend()
plt.savefig(sys.argv[1] if sys.argv[1:] else "savedmodel_gradient.svg")
