"""torch's optimizers and learning-rate schedules that a function refers to, so that a training step
is a function of its state: the weights that an optimizer owns, their moments and gradients, the
numbers that a schedule changes.

    def step(x, y):                        # tojax.from_torch(step)
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tojax import trees
from tojax.torch.core import interop
from tojax.torch.core.lifting import array_of, inner, lift, value_in
from tojax.torch.core.tensor import value_of
from tojax.torch.state.attribute_tree import NUMBERS, inside, items
from tojax.torch.state.closures import Function
from tojax.torch.state.optim import schedules

ALONE = {"foreach": False, "fused": False}  # one tensor at a time, as torch does when it compiles
OURS = {*ALONE, "capturable"}
BRANCHING = (torch.optim.RAdam, torch.optim.ASGD)  # on the count of steps, unless it is a tensor
DEPTH = 3  # of lists and objects around them


@dataclass
class Optimizers:
    """Those that a function refers to, by the names that it knows them by.

    Attributes:
      names: of the tensors that they own, by ``id``: a module's, or ``optimizer.params.0.1``.
      changed: for each schedule, of each group of its optimizer what it changes.
    """

    optimizers: dict[str, Optimizer] = field(default_factory=dict)
    schedules: dict[str, LRScheduler] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    changed: dict[str, list[list[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, module: torch.nn.Module) -> Optimizers:
        """What the function, if it is one, refers to."""
        found = cls()
        if isinstance(module, Function):
            for name, (holder, key) in module.captured.items():
                found.search(name, holder[key], set())
        changed = schedules.changed_in_groups
        found.changed = {k: changed(x) for k, x in found.schedules.items()}
        return found

    def search(self, name: str, value: Any, seen: set[int], depth: int = 0) -> None:
        """Finds them in lists and objects."""
        if isinstance(value, Optimizer):
            self.optimizers[name] = value
        elif isinstance(value, LRScheduler):
            self.schedules[name] = value
        elif depth < DEPTH and id(value) not in seen and not isinstance(value, torch.nn.Module):
            seen.add(id(value))
            holder = value if isinstance(value, tuple) else inside(value)
            for key, x in [] if holder is None else items(holder):
                self.search(f"{name}.{key}", x, seen, depth + 1)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.optimizers or self.schedules)

    def keeps(self, name: str) -> bool:
        """Whether an entry of the state is theirs."""
        known = (*self.optimizers, *self.schedules)
        return name.startswith(tuple(f"{x}." for x in known)) or (
            name.endswith(".grad") and name.removesuffix(".grad") in self.names.values()
        )

    def owned(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor that one of them updates, with a name where no module has it."""
        for name, optimizer in self.optimizers.items():
            for i, group in enumerate(optimizer.param_groups):
                for j, tensor in enumerate(group["params"]):
                    yield f"{name}.params.{i}.{j}", tensor

    def initial(self) -> dict[str, Any]:
        """What there is before the first step: gradients, moments, the numbers of schedules."""
        found = {k: x for k, x in self._read(lambda tensor: tensor.grad) if x is not None}
        for name, schedule in self.schedules.items():
            found |= {f"{name}.{k}": x for k, x in schedules.numbers(schedule).items()}
        found |= self._groups()
        array = lambda x: (
            interop.to_jax(x) if isinstance(x, torch.Tensor) else schedules.as_array(x)
        )
        return {k: array(x) for k, x in found.items()}

    def _groups(self) -> dict[str, Any]:
        """The numbers of groups that schedules change."""
        owner = {id(o): name for name, o in self.optimizers.items()}
        found: dict[str, Any] = {}
        for name, schedule in self.schedules.items():
            at = owner.get(id(schedule.optimizer), name)
            for i, names in enumerate(self.changed[name]):
                group = schedules.flat(schedule.optimizer.param_groups[i])
                found |= {f"{at}.{i}.{k}": group[k] for k in names}
        return found

    def _read(self, grad: Callable[[torch.Tensor], Any]) -> Iterator[tuple[str, Any]]:
        """(name, value) of gradients and moments as they are now."""
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                for tensor in group["params"]:
                    own = self.names[id(tensor)]
                    yield f"{own}.grad", grad(tensor)
                    for key, value in optimizer.state.get(tensor, {}).items():
                        if isinstance(value, (torch.Tensor, *NUMBERS)):
                            yield f"{name}.{own}.{key}", value

    def write_back(self, state: Mapping[str, jax.Array]) -> None:
        """Gives them moments, gradients and numbers of these names."""
        for name, optimizer in self.optimizers.items():
            for i, group in enumerate(optimizer.param_groups):
                for key, value in schedules.flat(group).items():
                    if (full := f"{name}.{i}.{key}") in state:
                        schedules.put(group, key, type(value)(state[full]))
                for tensor in group["params"]:
                    own = self.names[id(tensor)]
                    if f"{own}.grad" in state:
                        tensor.grad = interop.to_torch(state[f"{own}.grad"]).clone()
                    for full in state:
                        if full.startswith(prefix := f"{name}.{own}."):
                            moment = interop.to_torch(state[full]).clone()
                            optimizer.state[tensor][full.removeprefix(prefix)] = moment
        for name, schedule in self.schedules.items():
            for key, holder, place in [*schedules.places(schedule)]:
                if f"{name}.{key}" in state:
                    holder[place] = type(holder[place])(state[f"{name}.{key}"])

    @contextlib.contextmanager
    def filled(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[Callable[[], trees.Written]]:
        """They own the trace's tensors of their names for a while, with its moments and numbers.
        Yields what tells what was written.
        """
        before = {k: (o.param_groups, o.state) for k, o in self.optimizers.items()}
        numbers = {k: [schedules.flat(g) for g in own] for k, (own, _) in before.items()}
        names, start = self.names, {k: value_in(t) for k, t in tensors.items()}
        with contextlib.ExitStack() as stack:
            self.names = {}
            for name, optimizer in self.optimizers.items():
                self._fill(name, optimizer, names, tensors)
            for name, schedule in self.schedules.items():
                kept = schedules.numbers(schedule).items()
                given = {k: tensors.get(f"{name}.{k}", x) for k, x in kept}
                stack.enter_context(schedules.filled(schedule, given, self.changed[name]))
            try:
                yield lambda: self._written(start, numbers)
            finally:
                self.names = names
                for name, optimizer in self.optimizers.items():
                    optimizer.param_groups, optimizer.state = before[name]

    def _fill(self, name: str, optimizer: Optimizer, names, tensors) -> None:
        moments: defaultdict[torch.Tensor, dict[str, Any]] = defaultdict(dict)
        groups = []
        for i, group in enumerate(optimizer.param_groups):
            now = {**group}
            for key in schedules.flat(group):
                if f"{name}.{i}.{key}" in tensors:
                    schedules.put(now, key, tensors[f"{name}.{i}.{key}"])
            now |= {k: x for k, x in ALONE.items() if k in now}
            if isinstance(optimizer, BRANCHING):
                now["capturable"] = True
            now["params"] = []
            for tensor in group["params"]:
                own = names[id(tensor)]
                new = tensors[own]
                now["params"].append(new)
                self.names[id(new)] = own
                new.grad = tensors.get(f"{own}.grad")
                prefix = f"{name}.{own}."
                for key, value in optimizer.state.get(tensor, {}).items():
                    plain = isinstance(value, torch.Tensor)
                    moments[new][key] = lift(value.detach()) if plain else value
                found = [k for k in tensors if k.startswith(prefix)]
                moments[new] |= {k.removeprefix(prefix): tensors[k] for k in found}
                if not moments[new]:
                    del moments[new]
            groups.append(now)
        optimizer.param_groups, optimizer.state = groups, moments

    def _written(self, start: dict[str, Any], numbers: dict[str, list]) -> trees.Written:
        now = dict(self._read(lambda tensor: tensor.grad))
        owned = {self.names[id(t)]: t for _, t in self.owned()}
        now |= owned
        now |= self._groups()
        for name, optimizer in self.optimizers.items():
            for i, (group, before) in enumerate(zip(optimizer.param_groups, numbers[name])):
                own = schedules.flat(group)
                changed = (
                    k for k, x in own.items() if isinstance(x, torch.Tensor) or x != before[k]
                )
                now |= {f"{name}.{i}.{k}": own[k] for k in changed if k not in OURS}
        for name, schedule in self.schedules.items():
            now |= {f"{name}.{k}": x for k, x in schedules.numbers(schedule).items()}
        written = {}
        for name, value in now.items():
            if isinstance(value, torch.Tensor):
                held = inner(value)
                if value_of(held) is not start.get(name):
                    written[name] = array_of(value)
            elif value is None and name in start:
                written[name] = jnp.zeros_like(start[name])
            elif value is not None:
                written[name] = schedules.as_array(value)
        return trees.Written(written, {*written} & {*start})
