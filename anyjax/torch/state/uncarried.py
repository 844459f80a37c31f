"""Changes that forward makes to a module and that no state carries: strings, objects, dicts of new
keys, lists of anything but tensors and numbers, numpy's arrays and generators, another submodule
under the same name.

    self.mode = "b" if self.mode == "a" else "a"     # every call of the Model begins with "a"

torch's next call would begin with what this one left. Most such changes are harmless: a value
computed anew by every call, a log. So the next call is traced as torch would begin it, once for
each attribute, and a warning comes only where that is another program.
"""

from __future__ import annotations

import dis
import operator
import re
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from anyjax import trees, warn_once
from anyjax.errors import DataDependent, StateDropped, Unsupported
from anyjax.torch.core import private
from anyjax.torch.objects.contents import NUMBERS, Running, View, restore, snapshot
from anyjax.torch.objects.iterators import is_iterator, place
from anyjax.torch.state.torchscript import Values

MISSING = object()
IGNORED = {*vars(torch.nn.Module()), "_flat_weights", "_flat_weight_refs"}  # torch's own
ADDRESS = re.compile(r"0x[0-9a-f]+")


class Change(NamedTuple):
    """The content of a ``holder`` after forward: of a dict at this key, of a list or set in all."""

    name: str
    holder: Any
    key: Any
    after: Any


class Gradients(View):
    """The weights that have something in ``.grad``; resumed runs begin with ones there."""

    tensors: Mapping[str, torch.Tensor] = MappingProxyType({})

    def __init__(self) -> None:
        super().__init__(dict, self._put)
        self.get_all = self._get

    def _get(self) -> dict[str, Any]:
        with private.DisableTorchFunction():  # no operator
            return {f"{k}.grad": True for k, x in self.tensors.items() if x.grad is not None}

    def _put(self, name: str, _: object) -> None:
        tensor = self.tensors[name.removesuffix(".grad")]
        tensor.grad = torch.ones(tensor.shape, dtype=tensor.dtype)


class Uncarried:
    """The changes of the last run; while ``resumed``, runs begin with them."""

    def __init__(self) -> None:
        self.gradients = Gradients()
        self.changes: list[Change] = []
        self.modules: dict[str, torch.nn.Module] = {}
        self.watched: list[tuple[str, Any, Any, bool]] = []
        self.counts: list[tuple[Change, Any]] = []
        self.loose: list[Any] = []  # what functions refer to: code may note there that it is traced
        self.resumed = False

    def watch_module(
        self, path: str, module: torch.nn.Module, attributes: dict, contents: list
    ) -> None:
        """Watches the attributes, submodules and hooks of a module, which were these before."""
        if not path:  # the first one of a run
            self.watched, self.modules = [], {}
        self.modules[path] = module
        self.watched.append((path, vars(module), attributes, True))
        for holder, content in contents:
            if holder is not module._parameters and holder is not module._buffers:
                self.watched.append((path, holder, content, False))
        for key, value in attributes.items():
            if type(value) is set and key not in IGNORED:
                self.watch(f"{path}.{key}" if path else key, value, value.copy())

    def watch(self, name: str, holder: object, before: object) -> None:
        """Watches a list, dict or set, which had this content."""
        self.watched.append((name, holder, before, False))

    def watch_gradients(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Watches what weights get in ``.grad``, where backward adds to what is there."""
        self.gradients.tensors = weights
        self.watch("", self.gradients, {})

    def count(self, name: str, holder: Any, key: Any, before: object) -> None:
        """Notes a number around a function, which is what code made it: it may count traces."""
        after = holder[key]
        if isinstance(after, NUMBERS) and after is not before and after != before:
            self.counts.append((Change(name, holder, key, after), before))

    def begin(self) -> None:
        """Puts the changes into the module, if this run is to begin with them."""
        for _, holder, key, after in self.changes if self.resumed else ():
            if isinstance(holder, set):
                holder |= after
            elif isinstance(holder, np.ndarray):
                holder[...] = after
            elif not isinstance(holder, dict):
                current = dict(enumerate(holder))  # this run's, where they stand for the last one's
                items = [
                    current[i] if _carried(current.get(i), x) else x for i, x in enumerate(after)
                ]
                restore(holder, items)
            elif after is MISSING:
                holder.pop(key, None)
            else:
                holder[key] = after

    def end(self) -> None:
        """Notes what of the watched is another by now; sets get their former content back."""
        if not self.resumed:
            self.changes = []
        for name, holder, content, is_module in self.watched:
            if isinstance(holder, View):
                holder.read()
            same = isinstance(holder, dict) and holder.keys() == content.keys()
            if same and all(map(operator.is_, holder.values(), content.values())):
                continue  # nearly all of them: no call for each
            if not self.resumed:
                self.changes += _changes(name, holder, content, is_module)
            if isinstance(holder, set):
                holder.clear()
                holder |= content

    def over(self) -> None:
        """Lets go of what the last run left."""
        self.changes, self.watched, self.modules = [], [], {}
        self.counts, self.loose, self.gradients.tensors = [], [], {}

    def check(self, run: Callable[[], Any], known: set[str]) -> None:
        """Warns if ``run`` is another program where it begins with the changes; not about those
        whose names are ``known`` by now.

        Raises:
          Unsupported: forward went on with a generator, which stays where it is now.
        """
        if running := [x.name for x in self.changes if isinstance(x.holder, Running)]:
            raise Unsupported(
                f"forward goes on with the generator {running[0].removesuffix('.place')}",
                why="nothing brings a generator of Python back to where it was before the trace",
                do="keep what it counts in a number or a tensor, or make a new one in every call",
            )
        counts, loose = [*self.counts], [*self.loose]  # the runs below note theirs, too
        changes = (*self.changes, *(change for change, _ in counts))
        new = {change.name: change for change in changes if change.name not in known}
        if not new:
            return
        known.update(new)
        contents = [(holder, snapshot(holder)) for holder in loose]
        for change, before in counts:
            change.holder[change.key] = before
        first = _program(run)
        self.resumed = True
        try:
            for change, _ in counts:
                change.holder[change.key] = change.after
            second = _program(run)
        except Exception:  # what the first run left, such as its tensors, is no use to another
            second = None
        finally:
            self.resumed = False
            for change, _ in counts:
                change.holder[change.key] = change.after
            for holder, content in contents:
                restore(holder, content)
        if second is not None and _equal(first, second):
            return
        name, change = next(iter(new.items()))
        also = f" (and {', '.join([*new][1:4])})" if len(new) > 1 else ""
        warn_once.warn(
            f"forward changes {name}{also}{self._line(change.name)}, and torch's next call then "
            "computes something else: a Model carries tensors and numbers from call to call, so "
            "each of its calls begins with what was there when the module was converted. Keep a "
            "number or a tensor there, or make it an argument of forward",
            StateDropped,
        )

    def _line(self, name: str) -> str:
        """Where the code of the module's class names the attribute: `` (model.py:12)``."""
        path = max(
            (k for k in self.modules if f"{name}.".startswith(f"{k}." if k else "")), key=len
        )
        attribute = name.removeprefix(f"{path}.").partition(".")[0]
        methods = [f for c in type(self.modules[path]).__mro__ for f in vars(c).values()]
        codes = [f.__code__ for f in methods if isinstance(f, types.FunctionType)]
        codes = [c for c in codes if c.co_name != "__init__" and attribute in c.co_names]
        for opnames in (("STORE_ATTR",), ("LOAD_ATTR", "LOAD_METHOD")):
            for code in codes:
                for step in dis.get_instructions(code):
                    line = step.positions and step.positions.lineno
                    if step.opname in opnames and step.argval == attribute and line:
                        return f" ({code.co_filename}:{line})"
        return ""


def _changes(name: str, holder: Any, before: Any, is_module: bool) -> Iterator[Change]:
    if isinstance(holder, np.ndarray):
        if holder.tobytes() != before.tobytes():
            yield Change(name, holder, None, holder.copy())
    elif isinstance(holder, set):
        if holder != before:
            yield Change(name, holder, None, {*holder})
    elif not isinstance(holder, dict):
        places = [*before] + [None] * (len(holder) - len(before))
        if len(holder) < len(before) or not all(map(_carried, places, holder)):
            yield Change(name, holder, None, [*holder])
    else:
        for key in [*holder, *(before.keys() - holder.keys())]:
            after = holder.get(key, MISSING)
            if isinstance(holder, Values):  # numbers in C++ are no state
                same = before[key] == after
            elif isinstance(holder, Gradients):
                same = False
            else:
                same = _carried(before.get(key, MISSING), after)
            if not ((is_module and key in IGNORED) or same):
                yield Change(f"{name}.{key}" if name else str(key), holder, key, after)


def _carried(before: Any, after: Any, depth: int = 8) -> bool:
    """Returns whether the two are the same but for tensors and numbers, which are state."""
    if after is before or isinstance(after, torch.Tensor):
        return True
    if isinstance(after, NUMBERS):
        return before is None or isinstance(before, (torch.Tensor, *NUMBERS))
    if type(after) is not type(before) or not depth:
        return False
    if is_iterator(after):
        return place(before) == place(after)
    if isinstance(after, (tuple, list, deque)):
        try:  # e3nn's tuples have no len()
            return all(_carried(x, y, depth - 1) for x, y in zip(before, after, strict=True))
        except ValueError:
            return False
    if isinstance(after, dict):
        keys = after.keys() == before.keys()
        return keys and all(_carried(before[k], x, depth - 1) for k, x in after.items())
    try:
        return bool(before == after)
    except Exception:  # an __eq__ of somebody's own, of arrays for example
        return False


def _program(run: Callable[[], Any]) -> tuple[str, list[Any]]:
    """Returns (the program and results that are no arrays, as text; its constants); where values
    that are known now decide what it computes, its results in the place of the constants.
    """
    static_results: list[str] = []  # not the results: they hold tracers

    def arrays() -> list[Any]:
        leaves = jax.tree.leaves(run())
        static_results.extend(repr(x) for x in leaves if not trees.is_array(x))
        return [x for x in leaves if trees.is_array(x)]

    try:
        program = jax.make_jaxpr(arrays)()
    except DataDependent:
        static_results.clear()
        results = arrays()
        return ADDRESS.sub("", str(static_results)), results
    return ADDRESS.sub("", f"{program.jaxpr} {static_results}"), program.consts


def _equal(first: tuple[str, Sequence[object]], second: tuple[str, Sequence[object]]) -> bool:
    return first[0] == second[0] and all(map(equal_arrays, first[1], second[1]))


def equal_arrays(x: object, y: object) -> bool:
    """Returns whether two constants are one array, or of the same bytes: NaN is as NaN."""
    traced = isinstance(x, jax.core.Tracer) or isinstance(y, jax.core.Tracer)
    return x is y or (not traced and np.asarray(x).tobytes() == np.asarray(y).tobytes())
