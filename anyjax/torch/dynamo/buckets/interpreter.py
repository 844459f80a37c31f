"""Graphs with symbolic sizes, run on bucketed tensors."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch.utils._pytree import tree_leaves

from anyjax.torch.dynamo.buckets import elementwise, layers, normalization, reductions, views
from anyjax.torch.dynamo.buckets.bucketed import (
    Bucketed,
    Dim,
    Sizes,
    Unbucketed,
    Unequal,
    extent,
    is_static,
)
from anyjax.torch.dynamo.buckets.call import Call, Rule
from anyjax.torch.dynamo.interpreter import Interpreter
from anyjax.torch.engine.trace import Trace

RULES: Mapping[Any, Rule] = {
    **elementwise.RULES,
    **views.RULES,
    **reductions.RULES,
    **layers.RULES,
    **normalization.RULES,
}


class BucketInterpreter(Interpreter):
    """Runs a graph for the sizes of buckets; what counts of the results is as for those of a call.

    An operator without a rule, and a result that is not of the size that the graph has, raise
    Unbucketed.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        trace: Trace,
        sizes: Sizes,
        dims: Mapping[str, tuple[Dim, ...]],
    ):
        super().__init__(module, trace)
        self.sizes, self.dims = sizes, dims

    def run_node(self, n: torch.fx.Node) -> Any:
        """Runs one operator; what is computed of sizes is an expression."""
        meta = n.meta.get("val")
        is_number = isinstance(meta, (torch.SymInt, torch.SymFloat, torch.SymBool))
        if is_number and n.op != "placeholder":
            return self.sizes.expression(meta)
        out = super().run_node(n)
        if n.op == "placeholder":
            if is_number:
                return self.sizes.expression(meta)
            return self._bucketed(n.name, out, meta) if isinstance(meta, torch.Tensor) else out
        return out if n.op == "output" else self._checked(n, out, meta)

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Calls an operator by its rule, where one of its arguments is bucketed."""
        if target is operator.getitem:
            return args[0][args[1]]
        if not any(isinstance(x, (Bucketed, sympy.Expr)) for x in tree_leaves((args, kwargs))):
            return super().call_function(target, args, kwargs)
        packet = getattr(target, "overloadpacket", None)
        rule = RULES.get(target) or RULES.get(packet)
        if rule is None and torch.Tag.pointwise in getattr(target, "tags", ()):
            rule = elementwise.pointwise
        if rule is None:
            raise Unbucketed(str(target))
        try:
            return rule(Call(target, self.node.meta["val"], self.sizes), *args, **kwargs)
        except Unequal:
            raise
        except Exception as error:  # where it is the user's, the program for these sizes raises it
            raise Unbucketed(f"{target}: {str(error).strip().splitlines()[0]}") from error

    def _checked(self, node: torch.fx.Node, out: Any, meta: Any) -> Any:
        """Returns results that are of the sizes that the graph has for them."""
        if isinstance(meta, (tuple, list)):
            return type(meta)(self._checked(node, x, y) for x, y in zip(out, meta))
        if not isinstance(meta, torch.Tensor):
            return out
        dims = self.sizes.dims(meta)
        mine = out.dims if isinstance(out, Bucketed) else tuple((n,) for n in out.shape)
        tensor = out.tensor if isinstance(out, Bucketed) else out
        if (
            tuple(map(extent, mine)) != tuple(map(extent, dims))
            or tuple(tensor.shape) != self.sizes.shape(mine)
            or tensor.dtype != meta.dtype
        ):
            raise Unbucketed(f"{node.target}: a result of another size")
        return tensor if all(map(is_static, mine)) else out

    def _bucketed(self, name: str, tensor: torch.Tensor, meta: torch.Tensor) -> Any:
        """Returns an input; bucketed where not all of it counts."""
        dims = self.dims.get(name, self.sizes.dims(meta))
        return tensor if all(map(is_static, dims)) else Bucketed(tensor, dims)
