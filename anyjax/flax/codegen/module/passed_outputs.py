"""Values that the first layer computes and later layers take: each layer returns them.

T5's first layer computes the position bias, which the others take as an argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from torch import fx

from anyjax.flax.codegen.author.source_lines import forward_of
from anyjax.flax.codegen.graph.graph import Graph
from anyjax.flax.codegen.graph.submodule_tree import Block


def pass_on_outputs(graph: Graph, blocks: Iterable[Block]) -> dict[fx.Node, list[str]]:
    """Makes a block return the values that it takes and that a block of its class computes.

    Returns the names of these values where they are taken.
    """
    names: dict[fx.Node, list[str]] = defaultdict(list)
    by_class: dict[type, list[Block]] = defaultdict(list)
    for block in blocks:
        by_class[type(block.module)].append(block)
    for cls, similar in by_class.items():
        forward = forward_of(cls)
        parameters = forward.parameters() if forward and len(similar) > 1 else []
        makers = [x for x in similar if len(x.outputs) > 1]
        takers = [x for x in similar if parameters and makers]
        for taker in takers:
            taker_arguments = dict(graph.call_arguments(taker.call, parameters) or ())
            for maker in makers:
                maker_arguments = dict(graph.call_arguments(maker.call, parameters) or ())
                for name, node in _added_outputs(taker, taker_arguments, maker, maker_arguments):
                    names[node] += [name] * (name not in names[node])
    return names


def _added_outputs(
    taker: Block, taker_arguments: dict, maker: Block, maker_arguments: dict
) -> list[tuple[str, fx.Node]]:
    passed: list[tuple[str, fx.Node]] = []
    for place, node in enumerate(maker.outputs):
        names = [k for k, x in taker_arguments.items() if x is node]
        maker_takes = any(isinstance(maker_arguments.get(k), fx.Node) for k in names)
        if not names or maker_takes or len(taker.outputs) >= len(maker.outputs):
            continue
        if node not in taker.outputs:
            taker.outputs.insert(min(place, len(taker.outputs)), node)
            passed.append((names[0], node))
    return passed
