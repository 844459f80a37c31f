"""Modules that go by several names, as a head that a list has for each layer: by the first."""

from __future__ import annotations

from torch import fx, nn


class Aliases:
    """The first name of each module, and of the arrays in it."""

    def __init__(self, module: nn.Module):
        names: dict[nn.Module, str] = {}
        self.first: dict[str, str] = {}
        for name, part in module.named_modules(remove_duplicate=False):
            if names.setdefault(part, name) != name:
                self.first[name] = names[part]

    def array(self, name: str) -> str:
        """The name of a parameter or buffer."""
        home, _, leaf = name.rpartition(".")
        return f"{self.first[home]}.{leaf}" if home in self.first else name

    def rename(self, node: fx.Node) -> None:
        """Puts the first names into a node's calls; those by others are calls of their own."""
        if not self.first or not (stack := node.meta.get("nn_module_stack")):
            return
        named = lambda path: self.first.get(path.partition("@")[0])
        again = lambda path: path.replace("@", "_")
        node.meta["nn_module_stack"] = {
            key: (f"{first}@{again(path)}" if (first := named(path)) else path, kind)
            for key, (path, kind) in stack.items()
        }
