"""torch's optimizers and learning-rate schedules that a module or function holds, so that a
training step is a function of its state: the weights that an optimizer owns, their moments and
gradients, the numbers that a schedule changes.

    def step(x, y):                        # anyjax.from_torch(step)
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from anyjax import trees
from anyjax.torch.core import interop
from anyjax.torch.core.lifting import array_of, inner, lift, value_in
from anyjax.torch.core.tensor import value_of
from anyjax.torch.objects.contents import NUMBERS, contents, items
from anyjax.torch.state.optim import schedules

ALONE = {"foreach": False, "fused": False}  # one tensor at a time, as torch does when it compiles
OURS = {*ALONE, "capturable"}
BRANCHING = (torch.optim.RAdam, torch.optim.ASGD)  # on the count of steps, unless it is a tensor
DEPTH = 3  # of lists and objects around them


@dataclass
class Optimizers:
    """Optimizers and schedules that a module or function holds, by the names that it knows them by.

    Attributes:
      names: of the tensors that they own, by ``id``: a module's, or ``optimizer.params.0.1``.
      changed: for each schedule, of each group of its optimizer what it changes.
    """

    optimizers: dict[str, Optimizer] = field(default_factory=dict)
    schedules: dict[str, LRScheduler] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    changed: dict[str, list[list[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, roots: Iterable[tuple[str, Any]]) -> Optimizers:
        """Looks for those in what a module refers to, by name."""
        optimizers, seen = cls(), set[int]()
        for name, value in roots:
            optimizers.search(name, value, seen)
        changed = schedules.changed_in_groups
        optimizers.changed = {k: changed(x) for k, x in optimizers.schedules.items()}
        return optimizers

    def search(self, name: str, value: object, seen: set[int], depth: int = 0) -> None:
        if isinstance(value, Optimizer):
            self.optimizers[name] = value
        elif isinstance(value, LRScheduler):
            self.schedules[name] = value
        elif depth < DEPTH and id(value) not in seen and not isinstance(value, torch.nn.Module):
            seen.add(id(value))
            holder = value if isinstance(value, tuple) else contents(value)
            for key, x in [] if holder is None else items(holder):
                self.search(f"{name}.{key}", x, seen, depth + 1)

    def __bool__(self) -> bool:
        return bool(self.optimizers or self.schedules)

    def keeps(self, name: str) -> bool:
        """Returns whether an entry of the state is theirs."""
        names = (*self.optimizers, *self.schedules)
        return name.startswith(tuple(f"{x}." for x in names)) or (
            name.endswith(".grad") and name.removesuffix(".grad") in self.names.values()
        )

    def owned(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor that one of them updates, with a name where no module has it."""
        for name, optimizer in self.optimizers.items():
            for i, group in enumerate(optimizer.param_groups):
                for j, tensor in enumerate(group["params"]):
                    yield f"{name}.params.{i}.{j}", tensor

    def initial(self) -> dict[str, Any]:
        """Returns the state before the first step: gradients, moments, the numbers of schedules."""
        entries = {k: x for k, x in self._read(lambda tensor: tensor.grad) if x is not None}
        for name, schedule in self.schedules.items():
            entries |= {f"{name}.{k}": x for k, x in schedules.numbers(schedule).items()}
        entries |= self._groups()
        array = lambda x: (
            interop.to_jax(x) if isinstance(x, torch.Tensor) else schedules.as_array(x)
        )
        return {k: array(x) for k, x in entries.items()}

    def _groups(self) -> dict[str, Any]:
        """Returns the numbers of groups that schedules change."""
        owner = {id(o): name for name, o in self.optimizers.items()}
        groups: dict[str, Any] = {}
        for name, schedule in self.schedules.items():
            at = owner.get(id(schedule.optimizer), name)
            for i, names in enumerate(self.changed[name]):
                group = schedules.flat(schedule.optimizer.param_groups[i])
                groups |= {f"{at}.{i}.{k}": group[k] for k in names}
        return groups

    def _read(self, grad: Callable[[torch.Tensor], Any]) -> Iterator[tuple[str, Any]]:
        """(name, value) of gradients and moments as they are now."""
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                for tensor in group["params"]:
                    tensor_name = self.names[id(tensor)]
                    yield f"{tensor_name}.grad", grad(tensor)
                    for key, value in optimizer.state.get(tensor, {}).items():
                        if isinstance(value, (torch.Tensor, *NUMBERS)):
                            yield f"{name}.{tensor_name}.{key}", value

    def write_back(self, state: Mapping[str, jax.Array]) -> None:
        """Gives them moments, gradients and numbers of these names."""
        for name, optimizer in self.optimizers.items():
            for i, group in enumerate(optimizer.param_groups):
                for key, value in schedules.flat(group).items():
                    if (full := f"{name}.{i}.{key}") in state:
                        schedules.put(group, key, type(value)(state[full]))
                for tensor in group["params"]:
                    tensor_name = self.names[id(tensor)]
                    if f"{tensor_name}.grad" in state:
                        tensor.grad = interop.to_torch(state[f"{tensor_name}.grad"]).clone()
                    for full in state:
                        if full.startswith(prefix := f"{name}.{tensor_name}."):
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
        originals = {k: (o.param_groups, o.state) for k, o in self.optimizers.items()}
        numbers = {k: [schedules.flat(g) for g in groups] for k, (groups, _) in originals.items()}
        names, start = self.names, {k: value_in(t) for k, t in tensors.items()}
        with contextlib.ExitStack() as stack:
            self.names = {}
            for name, optimizer in self.optimizers.items():
                self._fill(name, optimizer, names, tensors)
            for name, schedule in self.schedules.items():
                numbers_now = schedules.numbers(schedule).items()
                filled_numbers = {k: tensors.get(f"{name}.{k}", x) for k, x in numbers_now}
                stack.enter_context(schedules.filled(schedule, filled_numbers, self.changed[name]))
            try:
                yield lambda: self._written(start, numbers)
            finally:
                self.names = names
                for name, optimizer in self.optimizers.items():
                    optimizer.param_groups, optimizer.state = originals[name]

    def _fill(self, name: str, optimizer: Optimizer, names, tensors) -> None:
        moments: defaultdict[torch.Tensor, dict[str, Any]] = defaultdict(dict)
        groups = []
        for i, group in enumerate(optimizer.param_groups):
            new_group = {**group}
            for key in schedules.flat(group):
                if f"{name}.{i}.{key}" in tensors:
                    schedules.put(new_group, key, tensors[f"{name}.{i}.{key}"])
            new_group |= {k: x for k, x in ALONE.items() if k in new_group}
            if isinstance(optimizer, BRANCHING):
                new_group["capturable"] = True
            new_group["params"] = []
            for tensor in group["params"]:
                tensor_name = names[id(tensor)]
                new = tensors[tensor_name]
                new_group["params"].append(new)
                self.names[id(new)] = tensor_name
                new.grad = tensors.get(f"{tensor_name}.grad")
                prefix = f"{name}.{tensor_name}."
                for key, value in optimizer.state.get(tensor, {}).items():
                    is_tensor = isinstance(value, torch.Tensor)
                    moments[new][key] = lift(value.detach()) if is_tensor else value
                moment_names = [k for k in tensors if k.startswith(prefix)]
                moments[new] |= {k.removeprefix(prefix): tensors[k] for k in moment_names}
                if not moments[new]:
                    del moments[new]
            groups.append(new_group)
        optimizer.param_groups, optimizer.state = groups, moments

    def _written(self, start: Mapping[str, jax.Array], numbers: dict[str, list]) -> trees.Written:
        entries = dict(self._read(lambda tensor: tensor.grad))
        owned = {self.names[id(t)]: t for _, t in self.owned()}
        entries |= owned
        entries |= self._groups()
        for name, optimizer in self.optimizers.items():
            for i, (group, old_group) in enumerate(zip(optimizer.param_groups, numbers[name])):
                flat_group = schedules.flat(group)
                changed = (
                    k
                    for k, x in flat_group.items()
                    if isinstance(x, torch.Tensor) or x != old_group[k]
                )
                entries |= {f"{name}.{i}.{k}": flat_group[k] for k in changed if k not in OURS}
        for name, schedule in self.schedules.items():
            entries |= {f"{name}.{k}": x for k, x in schedules.numbers(schedule).items()}
        written = {}
        for name, value in entries.items():
            if isinstance(value, torch.Tensor):
                inside = inner(value)
                if value_of(inside) is not start.get(name):
                    written[name] = array_of(value)
            elif value is None and name in start:
                written[name] = jnp.zeros_like(start[name])
            elif value is not None:
                written[name] = schedules.as_array(value)
        return trees.Written(written, {*written} & {*start})
