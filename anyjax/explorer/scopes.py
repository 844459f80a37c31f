"""The modules of a model: which of them an operation or a weight belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from anyjax.source import Source

OF_NODES = ("tensorflow", "onnx")  # their innermost scope is a node, not a module
TRANSFORMED = re.compile(r"\w+\((.*)\)")  # as JAX writes the scope of a derivative: jvp(layers.0)


@dataclass(frozen=True)
class Scopes:
    """The modules of a source.

    Attributes:
      kinds: class names by module path; empty where the source has no modules of its own.
      separator: between the parts of a path.
      of_nodes: whether the innermost scope is a node.
      stacks: for each stacked weight of rolled layers, the name of the first layer's.
    """

    kinds: Mapping[str, str]
    separator: str = "."
    of_nodes: bool = False
    stacks: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, names: Iterable[str]) -> Scopes:
        """Returns the modules of a source whose weights have these names."""
        named = getattr(getattr(source, "module", None), "named_modules", None)
        kinds = {path: type(x).__name__ for path, x in named()} if named is not None else {}
        groups = vars(source).get("groups", ())  # of transforms.roll
        stacks = {group.name: group.members[0] for group in groups}
        of_nodes = not kinds and source.framework in OF_NODES
        has_slashes = of_nodes or any("/" in name for name in names)
        separator = "/" if has_slashes and not kinds else "."
        return cls(kinds, separator, of_nodes, stacks)

    def module_of(self, scope: str) -> str:
        """Returns the path of the innermost module of a scope.

        Example:
          >>> Scopes({"": "Net", "layers.0": "Block", "layers.0.up": "Linear"}).module_of(
          ...     "/layers.0/up/softmax"
          ... )
          'layers.0.up'
          >>> Scopes({}, "/", of_nodes=True).module_of("//encoder/dense/MatMul")
          'encoder/dense'
        """
        steps = [step for step in scope.split("/") if step]
        if not self.kinds:
            return self.separator.join(steps[: len(steps) - self.of_nodes])
        path = pending = ""
        for step in steps:
            while match := TRANSFORMED.fullmatch(step):
                step = match[1]
            pending = f"{pending}/{step}" if pending else step
            candidates = (f"{path}.{pending}", f"{path}.{step}", pending, step)
            inner = next((x.lstrip(".") for x in candidates if x.lstrip(".") in self.kinds), None)
            if inner:
                path, pending = inner, ""
        return path

    def owner_of(self, name: str) -> str:
        """Returns the path of the module that a weight is named after.

        Example:
          >>> Scopes({"": "Net", "up": "Linear"}).owner_of("up.weight")
          'up'
        """
        path = self.stacks.get(name, name)
        while path:
            path = path.rpartition(self.separator)[0]
            if not self.kinds or path in self.kinds:
                return path
        return ""

    def lineage(self, path: str) -> Iterator[str]:
        """Yields a path and those of all modules around it, "" last.

        Example:
          >>> [*Scopes({}).lineage("layers.0.up")]
          ['layers.0.up', 'layers.0', 'layers', '']
        """
        while path:
            yield path
            path = path.rpartition(self.separator)[0]
        yield ""
