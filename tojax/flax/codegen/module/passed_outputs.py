"""What a first layer makes and later ones are given: they hand it on, so that all return alike.

T5's first layer computes the bias by positions, which the others take as an argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from torch import fx

from tojax.flax.codegen.author.source_lines import forward_of
from tojax.flax.codegen.graph.graph import Graph
from tojax.flax.codegen.graph.submodule_tree import Block


def hand_on(graph: Graph, blocks: Iterable[Block]) -> dict[fx.Node, list[str]]:
    """Adds to the outputs of blocks what they take in the place of what others of a class make.

    Returns what these values are called where they are taken.
    """
    names: dict[fx.Node, list[str]] = defaultdict(list)
    like: dict[type, list[Block]] = defaultdict(list)
    for block in blocks:
        like[type(block.module)].append(block)
    for cls, same in like.items():
        forward = forward_of(cls)
        parameters = forward.parameters() if forward and len(same) > 1 else []
        makers = [x for x in same if len(x.outputs) > 1]
        takers = [x for x in same if parameters and makers]
        for taker in takers:
            given = dict(graph.given(taker.call, parameters) or ())
            for maker in makers:
                theirs = dict(graph.given(maker.call, parameters) or ())
                for name, node in _handed(taker, given, maker, theirs):
                    names[node] += [name] * (name not in names[node])
    return names


def _handed(taker: Block, given: dict, maker: Block, theirs: dict) -> list[tuple[str, fx.Node]]:
    found: list[tuple[str, fx.Node]] = []
    for place, node in enumerate(maker.outputs):
        names = [k for k, x in given.items() if x is node]
        own = any(isinstance(theirs.get(k), fx.Node) for k in names)
        if not names or own or len(taker.outputs) >= len(maker.outputs):
            continue
        if node not in taker.outputs:
            taker.outputs.insert(min(place, len(taker.outputs)), node)
            found.append((names[0], node))
    return found
