"""``if`` on a traced value: torch code runs once for each way through it, ``lax.cond`` chooses.

    if x.sum() > 0:
        x = self.deep(x)

The first run stops where code asks for a condition that only the program knows. From there on there
are two ways, each of which is run from the start with the answer given, until none of them asks for
more; what was computed before the condition is not computed again. All ways must give results of
the same structure, shapes and dtypes.
"""

from __future__ import annotations

import contextlib
import linecache
import re
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from anyjax import trees
from anyjax.dtypes import is_float
from anyjax.errors import AnyjaxError, DataDependent, ForwardFailed
from anyjax.torch.core import interop
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.data_dependent.assertions import asking_trace
from anyjax.torch.state.uncarried import equal_arrays
from anyjax.typing import PyTree

CONDITIONS, PATHS = 16, 64  # at most, of one path and of a program
OUTSIDE = "the code changes something outside of itself when it is run"
DO = "use torch.where or torch.cond there, or call model.apply outside jax.jit"
ADDRESS = re.compile(r"0x[0-9a-f]+")
Run = Callable[["Path"], tuple[Any, trees.Written]]


class NeedsBranch(BaseException):
    """A condition has no answer yet."""

    def __init__(self, condition: jax.Array, error: DataDependent):
        self.condition, self.error = condition.reshape(()) != 0, error

    def over(self) -> NeedsBranch:
        """Without the frames of the run that it ended, which hold on to each other."""
        return self.with_traceback(None)


class Changed(BaseException):
    """A run did something else than the one before it."""


class Path:
    """The answers to one run's conditions, in the order in which it asks.

    ``log`` holds what operators gave in the run that asked first: until then this one computes
    nothing again. The ``first`` run of all keeps none: most code asks for no condition.
    """

    def __init__(
        self,
        answers: tuple[bool, ...] = (),
        log: Iterable[tuple[Any, Any]] = (),
        first: bool = False,
    ):
        self.answers, self.first = answers, first
        self.asked: list[jax.Array] = []
        self.log, self.done = list(log), 0
        self.stopped: BaseException | None = None

    def stop(self, reason: BaseException) -> NoReturn:
        """Ends the run, also where the code that asked catches everything."""
        self.stopped = reason
        raise reason

    @property
    def full(self) -> bool:
        """Returns whether one more condition would be too many."""
        return len(self.asked) >= CONDITIONS

    def complete(self, run: Run) -> tuple[Any, trees.Written]:
        """Returns the results of the run."""
        out = run(self)
        if self.stopped is not None:
            raise self.stopped
        return out

    def check(self, tensors: Iterable[object]) -> None:
        """Raises Changed for a tensor that another run left somewhere."""
        run = JaxTensor.runs
        if not self.first and any(getattr(tensor, "run", run) != run for tensor in tensors):
            self.stop(Changed())

    def once(self, op: object, lowering: Callable, operands: Iterable[object]) -> Callable:
        """Returns the lowering, or what it gave before."""
        if self.first or self.stopped is not None:
            return lowering
        self.check(operands)

        def known(*args: Any, **kwargs: Any) -> Any:
            call = str((op, *jax.tree.map(_shown, (args, kwargs))))
            if self.done == len(self.log):
                try:
                    self.log.append((call, lowering(*args, **kwargs)))
                except Exception as error:  # which code may catch
                    self.log.append((call, error))
            logged_call, out = self.log[self.done]
            if logged_call != call:
                self.stop(Changed())
            self.done += 1
            if isinstance(out, Exception):
                raise out.with_traceback(None)
            return out

        return known

    def answer(self, condition: jax.Array, error: DataDependent) -> bool:
        """Returns the answer, the same where a condition is asked again; raises NeedsBranch where
        there is none.
        """
        for condition_before, answer in zip(self.asked, self.answers):
            if condition_before is condition:
                return answer
        self.asked.append(condition)
        if len(self.asked) <= len(self.answers):
            return self.answers[len(self.asked) - 1]
        if len(self.asked) > CONDITIONS:
            why = f"one way asks for more than {CONDITIONS} conditions, as a loop does"
            return self.stop(refused(error, why))
        return self.stop(NeedsBranch(condition, error))


def all_paths(
    run: Run, before: Callable[[str], object], twice: bool = True
) -> tuple[Any, trees.Written]:
    """Returns (output, writes to the state) of ``run``, whichever way the code goes.

    ``before(name)`` is an entry of the state as it was, None if there was none. ``twice``: whether
    two runs are compared, for what code changes outside of itself.

    Raises:
      DataDependent: there are too many ways, they give different kinds of results, one of them
        raises, or the code counts how often it is run.
    """
    try:
        return Path(first=True).complete(run)
    except NeedsBranch as asked:
        error = asked.over().error
    return Fork(run, before, error, twice)()


def _shown(value: Any) -> Any:
    return (value.shape, str(value.dtype)) if trees.is_array(value) else value


def undivided() -> contextlib.AbstractContextManager:
    """In here no condition is answered: the caller waits for DataDependent and knows better."""
    trace = asking_trace()
    return contextlib.nullcontext() if trace is None else trace.inside()


def refused(error: DataDependent, why: str) -> DataDependent:
    """Returns the error for a condition, with the reason why not both ways could be taken."""
    return DataDependent(error.what, arguments=error.arguments, where=error.where, why=why, do=DO)


class Raises(Exception):
    """The way of these answers ends in a ``raise``."""

    def __init__(self, answers: tuple[bool, ...], refusal: DataDependent):
        self.answers, self.refusal = answers, refusal


def is_raised(error: Exception) -> bool:
    """Returns whether code raised an error by a statement, rather than met one."""
    if isinstance(error, AnyjaxError):
        return False
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return linecache.getline(frame.f_code.co_filename, line).split(maxsplit=1)[:1] == ["raise"]


class Wrote(Exception):
    """One way wrote to entries of the state that others did not."""


class Fork:
    """All ways through the code."""

    def __init__(
        self, run: Run, before: Callable[[str], object], error: DataDependent, twice: bool
    ):
        self.run, self.before, self.error, self.twice = run, before, error, twice
        self.names: dict[str, Any] = {}  # of the state, what any way writes to, with its dtype
        self.missed: set[str] = set()
        self.wrote: set[tuple[bool, ...]] = set()  # ways that wrote to what no other did before
        self.form: Any = None
        self.count = 0

    def __call__(self) -> tuple[Any, trees.Written]:
        try:
            program = self.program()
            alike = not self.twice or same(program, self.program())
        except (Changed, jax.errors.UnexpectedTracerError):  # one run's tensor used in another
            alike = False
        if not alike:
            raise refused(self.error, OUTSIDE)
        structure, static, _ = self.form
        rest = iter(jax.core.eval_jaxpr(program.jaxpr, program.consts))
        leaves = [next(rest) if x is None else x.value for x in static]
        out = trees.plain_dicts(jax.tree.unflatten(structure, leaves))
        self.missed |= {name for name in self.names if trees.is_array(self.before(name))}
        return out, trees.Written(dict(zip(sorted(self.names), rest)), self.missed)

    def program(self) -> Any:
        while True:
            self.form, self.count = None, 0
            try:
                return jax.make_jaxpr(lambda: self.follow(Path()))()
            except Raises as end:  # whichever way it goes
                raise end.refusal from end
            except Wrote as more:
                self.names |= {k: v for k, v in more.args[0].items() if k not in self.names}

    def follow(self, path: Path) -> list[jax.Array]:
        """Returns the arrays that one way gives, or those of the two that it leads to."""
        try:
            out, written = path.complete(self.run)
        except NeedsBranch as asked:
            condition, self.error = asked.condition, asked.over().error
        except Exception as error:
            ours = isinstance(error, AnyjaxError) and not isinstance(error, ForwardFailed)
            if ours or isinstance(error, jax.errors.UnexpectedTracerError):
                raise
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            refusal = refused(self.error, f"one of its two ways raises {text}")
            if path.answers and is_raised(error):
                raise Raises(path.answers, refusal) from error
            raise refusal from error
        else:
            return self.arrays(out, written, path.answers)
        further = lambda answer: lambda: self.follow(Path((*path.answers, answer), path.log))
        try:
            return lax.cond(condition, further(True), further(False))
        except Raises as end:
            answer = not end.answers[len(path.answers)]
            return self.without(condition == answer, further(answer)(), end.refusal)

    def without(self, holds: jax.Array, arrays: list[jax.Array], refusal: DataDependent) -> list:
        """Returns the results of the way that does not raise, NaN where the other one is gone."""
        if not any(is_float(x.dtype) for x in arrays):
            raise refusal
        return [jnp.where(holds, x, jnp.nan) if is_float(x.dtype) else x for x in arrays]

    def arrays(
        self, out: PyTree, written: trees.Written, answers: tuple[bool, ...]
    ) -> list[jax.Array]:
        """Returns the results and the state of one way, which has to write what the others do."""
        self.count += 1
        self.missed |= written.missed
        if self.count > PATHS:
            raise refused(self.error, f"there are more than {PATHS} ways through the code")
        if written.keys() - self.names:
            if answers in self.wrote:  # a list that grows with each run
                raise refused(self.error, OUTSIDE)
            self.wrote.add(answers)
            raise Wrote({k: v.dtype for k, v in written.items()})
        state = {k: written[k] if k in written else self.unwritten(k) for k in sorted(self.names)}
        if unset := [name for name, value in state.items() if value is None]:
            why = f"only some of its ways write to {', '.join(unset)}"
            raise refused(self.error, why)
        leaves, structure = jax.tree.flatten(trees.keep_order(out))
        static = [None if trees.is_array(x) else trees.Static(x) for x in leaves]
        arrays = [*(x for x in leaves if trees.is_array(x)), *state.values()]
        arrays = [strong(jnp.asarray(x)) for x in arrays]
        form = structure, static, [(x.shape, x.dtype) for x in arrays]
        self.form = self.form or form
        if form != self.form:
            first_shapes, second_shapes = (
                ", ".join(f"{d}{list(s)}" for s, d in x[2]) for x in (self.form, form)
            )
            why = f"one of its ways gives {first_shapes}, another {second_shapes}"
            why = (
                "its ways give values of different kinds" if first_shapes == second_shapes else why
            )
            raise refused(self.error, why)
        return arrays

    def unwritten(self, name: str) -> Any:
        """Returns an earlier state entry, a plain number in the dtype of its replacement."""
        value = self.before(name)
        if isinstance(value, torch.Tensor):
            return interop.to_jax(value)
        if not isinstance(value, (int, float)):
            return value
        array = np.asarray(value, self.names[name])
        return array if array == value else value


def strong(x: jax.Array) -> jax.Array:
    """Without JAX's weak type, which a loop's carry must not change."""
    return lax.convert_element_type(x, x.dtype)


def same(one: Any, other: Any) -> bool:
    """Returns whether two programs and their constants are equal."""
    texts = [ADDRESS.sub("", str(x.jaxpr)) for x in (one, other)]
    return texts[0] == texts[1] and all(map(equal_arrays, one.consts, other.consts))
