"""Modules that go by several names, as a head that a list has for each layer: by one of them.

It is the innermost, which those around it reach as well.
"""

from __future__ import annotations

from collections import defaultdict

from torch import fx, nn


class Aliases:
    """The one name of each module that has several, and of the arrays in it."""

    def __init__(self, module: nn.Module):
        names: dict[nn.Module, list[str]] = defaultdict(list)
        for name, part in module.named_modules(remove_duplicate=False):
            names[part].append(name)
        several = [x for x in names.values() if len(x) > 1]
        self.one = {x: max(same, key=lambda x: x.count(".")) for same in several for x in same}

    def array(self, name: str) -> str:
        """The name of a parameter or buffer."""
        home, _, leaf = name.rpartition(".")
        return f"{self.one[home]}.{leaf}" if home in self.one else name

    def rename(self, node: fx.Node) -> None:
        """Puts these names into a node's calls; those by others are calls of their own.

        A name that the caller does not reach stays as it was.
        """
        if not self.one or not (stack := node.meta.get("nn_module_stack")):
            return
        found, around = {}, ""
        for key, (path, kind) in stack.items():
            name = path.partition("@")[0]
            one = self.one.get(name, name)
            if one != name and one.startswith(around):
                path = f"{one}@{path.replace('@', '_')}"
            found[key] = path, kind
            around = f"{path.partition('@')[0]}." if path else ""
        node.meta["nn_module_stack"] = found
