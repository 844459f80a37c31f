"""Modules with several names, as a head that a list has for each layer: one name for each.

It is the innermost one, which the modules around it reach as well.
"""

from __future__ import annotations

from collections import defaultdict

from torch import fx, nn


class Aliases:
    """The one name of each module that has several, and of the arrays in it."""

    def __init__(self, module: nn.Module):
        names: dict[nn.Module, list[str]] = defaultdict(list)
        for name, submodule in module.named_modules(remove_duplicate=False):
            names[submodule].append(name)
        several = [x for x in names.values() if len(x) > 1]
        self.canonical = {
            x: max(same, key=lambda x: x.count(".")) for same in several for x in same
        }

    def array(self, name: str) -> str:
        """Returns the name of a parameter or buffer."""
        home, _, leaf = name.rpartition(".")
        return f"{self.canonical[home]}.{leaf}" if home in self.canonical else name

    def rename(self, node: fx.Node) -> None:
        """Renames the calls of a node; each alias becomes a call of its own.

        A name that the caller does not reach stays as it was.
        """
        if not self.canonical or not (stack := node.meta.get("nn_module_stack")):
            return
        renamed, prefix = {}, ""
        for key, (path, kind) in stack.items():
            name = path.partition("@")[0]
            canonical_name = self.canonical.get(name, name)
            if canonical_name != name and canonical_name.startswith(prefix):
                path = f"{canonical_name}@{path.replace('@', '_')}"
            renamed[key] = path, kind
            prefix = f"{path.partition('@')[0]}." if path else ""
        node.meta["nn_module_stack"] = renamed
