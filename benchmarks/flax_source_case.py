"""One module for flax_source.py: its source code written, run and compared."""

from __future__ import annotations

import copy
import functools
import inspect
import statistics
import sys
import time
import types
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from flax_source_lines import code_lines, lines_run

import anyjax

TOLERANCE, FLOOR = 1e-3, 0.05  # of the largest value, and the least that counts as that
NAMES = {"kernel": "weight", "scale": "weight", "embedding": "weight"}


def kernel(weight):
    """A weight as Flax stores it."""
    return weight.permute(*range(2, weight.ndim), 1, 0)


class Wrong(Exception):
    """A check that fails."""


class NotAsked(Exception):
    """A check that says nothing of this module."""


def said(error: BaseException) -> str:
    """An error in one line; of ours also why."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [""]
    more = [x for x in lines[1:] if x.startswith(("why:", "where:"))]
    return " ".join([f"{type(error).__name__}: {lines[0]}", *more])[:400]


def plain(name: str):
    """(module, inputs by name, how to build it again, which outputs are random)."""
    from tests.flax.codegen.models import CASES

    cls, inputs, _ = CASES[name]
    torch.manual_seed(0)
    module = cls().eval()
    names = [*inspect.signature(module.forward).parameters]
    return module, dict(zip(names, inputs)), cls, set()


def tiny(name: str):
    """The same for a type of transformers, or why there is none."""
    import transformers

    from proof.tiny_inputs import tiny as tiny_of
    from proof.tiny_models import NoTinyModel

    transformers.logging.set_verbosity_error()
    try:
        case = tiny_of(name)
    except NoTinyModel as error:
        return f"{said(error)}: {error.__cause__ and said(error.__cause__)}"
    module = case.model
    return module, case.inputs, lambda: type(module)(copy.deepcopy(module.config)), case.random


def flat(value) -> list:
    """The arrays of a result, in its order."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in flat(part)]
    return [value] if isinstance(value, (torch.Tensor, jax.Array, np.ndarray)) else []


def compare(got, want, what: str, tolerance=TOLERANCE, random=()) -> None:
    if len(got) != len(want):
        raise Wrong(f"{what}: {len(got)} arrays, torch has {len(want)}")
    for i, (mine, theirs) in enumerate(zip(got, want)):
        mine, theirs = np.asarray(mine), theirs.detach().numpy()
        if mine.shape != theirs.shape:
            raise Wrong(f"{what}: array {i} has the shape {mine.shape}, torch {theirs.shape}")
        if i in random or not theirs.size:
            continue
        mine, theirs = mine.astype(np.float64), theirs.astype(np.float64)
        finite = np.isfinite(theirs)
        if not np.array_equal(mine[~finite], theirs[~finite], equal_nan=True):
            raise Wrong(f"{what}: array {i} has other infinities")
        if finite.any():
            off = np.abs(mine - theirs)[finite].max() / max(FLOOR, np.abs(theirs[finite]).max())
            if not off <= tolerance:
                raise Wrong(f"{what}: array {i} is off by {off:.2g}")


def settled(got, want, exact, what, tolerance=TOLERANCE):
    """As ``compare``, unless torch is as far from its own result in 64 bits, which exact() gives.

    Some values are what rounding leaves, as slopes of a bias that a softmax cancels.
    """
    try:
        compare(got, want, what, tolerance)
    except Wrong:
        try:
            truth = exact()
        except (RuntimeError, TypeError, ValueError):
            truth = []  # the module insists on 32 bits
        if len(truth) != len(want):
            raise
        apart = lambda x, y: np.abs(np.asarray(x) - y.detach().numpy()).max(initial=0)
        pairs = zip(got, want, truth, strict=True)
        if not all(apart(x, t) <= 4 * apart(y.detach().numpy(), t) for x, y, t in pairs):
            raise


def in_64_bits(module, inputs):
    """The same with floats in 64 bits."""
    wide = lambda x: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
    return copy.deepcopy(module).double(), {k: wide(x) for k, x in inputs.items()}


def slopes_of(module, inputs) -> dict[str, torch.Tensor]:
    """Those of the sum of sines, for the parameters that it depends on."""
    out = [x for x in flat(module(**copy.deepcopy(inputs))) if x.requires_grad]
    named = {k: p for k, p in module.named_parameters() if p.requires_grad}
    if not out or not named:
        raise NotAsked("torch has no gradients")
    loss = sum((3 * x).sin().sum() for x in out)
    found = torch.autograd.grad(loss, [*named.values()], allow_unused=True)
    return {k: x for k, x in zip(named, found) if x is not None}


class Case:
    """The module, its source and the model of that; each check is a method."""

    def __init__(self, module, inputs, build, random):
        self.module, self.inputs, self.build = module, inputs, build
        self.random = random
        self.row: dict = {}

    def fresh(self):
        """The module without what calls have left in it."""
        found = self.build().eval()
        found.load_state_dict(self.module.state_dict())
        return found

    def source(self) -> None:
        fresh = self.fresh()
        began = time.perf_counter()
        self.text = anyjax.flax.source(fresh, check=False, **self.inputs)
        self.row["seconds"] = time.perf_counter() - began
        file = types.ModuleType("written")
        sys.modules["written"] = file
        exec(compile(self.text, "written", "exec"), vars(file))
        self.cls = getattr(file, type(self.module).__name__)
        weights = {k: v.detach().numpy() for k, v in self.module.state_dict().items()}
        self.model = file.load_params(self.cls(rngs=nnx.Rngs(0)), weights)
        self.model.eval()
        self.graph, self.params, self.rest = nnx.split(self.model, nnx.Param, ...)
        self.run = jax.jit(lambda *state, **x: flat(nnx.merge(self.graph, *state)(**x)))

    def arrays(self, inputs) -> dict:
        """What the written function takes of the inputs."""
        names = inspect.signature(self.cls.__call__).parameters
        given = {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)}
        pairs = [(k if k in names else f"{k}_", v) for k, v in given.items()]
        return {k: jnp.asarray(v.numpy()) for k, v in pairs if k in names}

    def torch(self, inputs) -> list[torch.Tensor]:
        with torch.no_grad():
            torch.manual_seed(0)
            return flat(self.module(**copy.deepcopy(inputs)))

    def forward(self) -> None:
        got = self.run(self.params, self.rest, **self.arrays(self.inputs))
        compare(got, self.torch(self.inputs), "values", random=self.random)

    def gradient(self) -> None:
        if self.random:
            raise NotAsked("outputs are random")
        named = {k: p for k, p in self.module.named_parameters() if p.requires_grad}
        wanted = slopes_of(self.fresh(), self.inputs)
        wide = functools.cache(lambda: slopes_of(*in_64_bits(self.fresh(), self.inputs)))
        chosen = [x.requires_grad for x in flat(self.module(**self.inputs))]

        def mine(params):
            found = flat(nnx.merge(self.graph, params, self.rest)(**self.arrays(self.inputs)))
            return sum(jnp.sin(3 * x).sum() for x, use in zip(found, chosen) if use)

        found = jax.jit(jax.grad(mine, allow_int=True))(self.params)
        every = self.module.named_parameters(remove_duplicate=False)
        first = {id(p): k for k, p in named.items()}
        tied = {k: first[id(p)] for k, p in every if id(p) in first}
        seen = set()
        chains = {x for x, part in nnx.iter_graph(self.model) if isinstance(part, nnx.Sequential)}
        for path, value in nnx.to_flat_state(found):
            names = [str(x) for i, x in enumerate(path) if path[:i] not in chains]
            *home, name = (x for x in names if x != "layers_")
            key = ".".join([*home, name])
            key = key if key in tied else ".".join([*home, NAMES.get(name, name)])
            key = tied.get(key, key)
            seen.add(key)
            if key not in named:  # torch keeps it as it is
                continue
            want = wanted.get(key, torch.zeros_like(named[key]))
            stored = kernel if name == "kernel" else lambda x: x
            exact = lambda key=key, stored=stored: [stored(wide()[key])]
            settled([value[...]], [stored(want)], exact, key, 10 * TOLERANCE)
        left = [k for k, x in wanted.items() if k not in seen and x.abs().max() > 0]
        if left:
            raise Wrong(f"no gradient of {left[0]}")

    def shape(self) -> None:
        for how, inputs in others(self.inputs):
            try:
                want = self.torch(inputs)
            except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
                continue  # torch does not take this shape: the next one
            self.row["other"] = how
            self.written_on(inputs, want)
            return
        raise NotAsked("torch takes no other shape")

    def written_on(self, inputs, want) -> None:
        got = self.run(self.params, self.rest, **self.arrays(inputs))
        compare(got, want, "values", random=self.random)

    def training(self) -> None:
        """With dropout first, then with none left on either side."""
        model = nnx.clone(self.model)
        model.train()
        arrays = self.arrays(self.inputs)
        layers = [x for _, x in nnx.iter_modules(model) if isinstance(x, nnx.Dropout)]
        if any(x.rate for x in layers):
            run = nnx.jit(lambda model, x: flat(model(**x)))
            one, other = run(model, arrays), run(model, arrays)
            if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other)):
                raise Wrong("two draws of dropout are equal")
        model = nnx.clone(self.model)  # whose running statistics are as they were
        model.train()
        for _, layer in nnx.iter_modules(model):
            if isinstance(layer, nnx.Dropout):
                layer.rate = 0.0
        module = undropped(copy.deepcopy(self.module)).train()
        with torch.no_grad():
            again = flat(copy.deepcopy(module)(**copy.deepcopy(self.inputs)))
            wide, inputs = in_64_bits(module, self.inputs)
            want = flat(module(**copy.deepcopy(self.inputs)))
        if not all(torch.equal(a, b) for a, b in zip(want, again)):
            raise NotAsked("torch is random without dropout, too")
        got = nnx.jit(lambda model, x: flat(model(**x)))(model, arrays)
        far = functools.cache(lambda: flat(wide(**inputs)))
        settled(got, want, far, "values")
        self.statistics(model, module, lambda: (far(), wide)[1])

    def statistics(self, model, module, wide) -> None:
        """What one call in training mode has made of running means and variances."""
        chains = {x for x, part in nnx.iter_graph(model) if isinstance(part, nnx.Sequential)}
        theirs = dict(module.named_buffers())
        for path, value in nnx.to_flat_state(nnx.state(model, nnx.BatchStat)):
            *home, name = (str(x) for i, x in enumerate(path) if path[:i] not in chains)
            name = f"running_{name}" if name in {"mean", "var"} else name
            key = ".".join([*(x for x in home if x != "layers_"), name])
            exact = lambda key=key: [wide().get_buffer(key)]
            settled([value[...]], [theirs[key]], exact, key)

    def init(self) -> None:
        fresh = self.cls(rngs=nnx.Rngs(1))
        fresh.eval()
        _, params, rest = nnx.split(fresh, nnx.Param, ...)
        got = self.run(params, rest, **self.arrays(self.inputs))
        for i, (mine, theirs) in enumerate(zip(got, self.torch(self.inputs))):
            if not (np.isfinite(mine) | ~np.isfinite(theirs.numpy())).all():
                raise Wrong(f"array {i} is not finite")

    def speed(self) -> None:
        static = {k: v for k, v in self.inputs.items() if not isinstance(v, torch.Tensor)}
        arrays = {k: jnp.asarray(v.numpy()) for k, v in self.inputs.items() if k not in static}
        converted = anyjax.from_torch(self.module)
        theirs = jax.jit(lambda params, x: flat(converted.apply(params, **x, **static)))
        mine = self.arrays(self.inputs)
        leaves, tree = jax.tree.flatten((self.params, self.rest))  # nnx takes its time over these
        build = lambda leaves: nnx.merge(self.graph, *jax.tree.unflatten(tree, leaves))
        ours = jax.jit(lambda leaves, x: flat(build(leaves)(**x)))
        calls = [
            lambda: ours(leaves, mine),
            lambda: theirs(converted.params, arrays),
        ]
        found: list[list[float]] = [[], []]
        for i in range(23):
            for call, times in zip(calls, found):
                began = time.perf_counter()
                jax.block_until_ready(call())
                times += [time.perf_counter() - began] * (i > 2)
        self.row["ratio"] = statistics.median(a / b for a, b in zip(*found))

    def length(self) -> None:
        classes, _, _ = self.text.partition("\ndef load_params")
        self.row["lines"] = code_lines(classes)
        self.row["lines_with_loader"] = code_lines(self.text)
        forward = lambda: self.module(**copy.deepcopy(self.inputs))
        self.row["torch_lines"] = lines_run(self.module, self.build, forward)


def others(inputs):
    """Inputs of other shapes, those that differ most first."""
    given = {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor) and v.ndim}
    main = next((given[k] for k in ("input_ids", "attention_mask", "inputs_embeds") if k in given),
                next(iter(given.values())))  # fmt: skip
    batch, length = main.shape[0], main.shape[1] if main.ndim in (2, 3) else None

    def changed(x, more: bool, shorter: bool):
        if not isinstance(x, torch.Tensor) or not x.ndim:
            return x
        if shorter and x.ndim > 1 and x.shape[1] == length and length > 2:
            x = x[:, : length - 2]
        return torch.cat([x, x[:1]]) if more and x.shape[0] == batch else x

    shorter = length is not None
    for how, both in {"batch, length": (True, shorter), "batch": (True, False),
                      "length": (False, shorter)}.items():  # fmt: skip
        yield how, {k: changed(v, *both).contiguous() if k in given else v
                    for k, v in inputs.items()}  # fmt: skip


def undropped(module: torch.nn.Module) -> torch.nn.Module:
    """A module whose rates of dropout are all 0, those in its config included."""
    for part in module.modules():
        for holder in (part, getattr(part, "config", None)):
            for name, value in list(vars(holder).items()) if holder is not None else ():
                rate = "drop" in name or (name == "p" and "Dropout" in type(part).__name__)
                if rate and isinstance(value, float):
                    setattr(holder, name, 0.0)
    return module


def checked(row: dict, module, inputs, build, random, checks) -> None:
    """Writes into the row what each check finds; none follows source where that fails."""
    case = Case(module, inputs, build, random)
    case.row = row
    for check in checks:
        try:
            getattr(case, check)()
            row[check] = "ok"
        except NotAsked as why:
            row[check] = f"n/a: {why}"
        except Exception as error:
            row[check] = said(error)
            if check == "source":
                return
