"""Calls of functions: computed in place, so that known values stay known."""

from __future__ import annotations

from anyjax.tensorflow.core.running import handles


@handles("PartitionedCall", "StatefulPartitionedCall")
def call(run, node, inputs):
    return run.call(node.attr("f"), inputs, node.used)
