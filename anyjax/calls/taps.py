"""Taps on the modules of a source: their values beside the output, or others in their place."""

from __future__ import annotations

import copy
import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from anyjax.errors import Unsupported, WrongArguments
from anyjax.typing import PyTree


@dataclass(frozen=True)
class Tap:
    """One look into the modules of a source that runs, or a change of them.

    Attributes:
      pattern: regular expression, searched in the paths of modules.
      edit: function of a module's path and output whose result takes the output's place. Without
        it the values are returned beside the output.
      inputs: values are what the modules are called with, as (args, kwargs); of an edit the
        arrays in them and in their tuples, lists and dicts, by place.
      around: makes a context that the model's code runs in.
      pick: gives what of a value is returned, at once: objects may change before the end.
      lenient: leave out what cannot be returned, such as values inside of loops, instead of an
        error; edit computed values alone, not constants.
    """

    pattern: str
    edit: Callable[[str, PyTree], PyTree] | None = None
    inputs: bool = False
    around: Callable[[], AbstractContextManager] | None = None
    lenient: bool = False
    pick: Callable[[PyTree], PyTree] | None = None

    def check_paths(self, paths: Sequence[str]) -> None:
        """Raises WrongArguments if the pattern is none, or no module has such a path."""
        try:
            pattern = re.compile(self.pattern)
        except re.error as error:
            raise WrongArguments(
                f"{self.pattern!r} is no regular expression",
                why=str(error),
                do="escape what is meant literally: re.escape(path)",
            ) from None
        if not self.lenient and not any(map(pattern.search, paths)):
            near = difflib.get_close_matches(self.pattern, paths, 3, 0.3) or [*paths[:3]]
            raise WrongArguments(
                f"no module has a path with {self.pattern!r}",
                why=f"there are {len(paths)} paths, such as {', '.join(near)}"
                if paths
                else "the model has no modules inside",
                do="list them with [path for path, _ in module.named_modules()]",
            )


class Readings:
    """The values at the taps of one run.

    A module that runs several times has the paths ``path``, ``path#1``, ``path#2`` and so on.
    """

    def __init__(self, taps: tuple[Tap, ...]):
        self.taps = taps
        self.values: list[dict[str, Any]] = [{} for _ in taps]
        self.runs: list[Counter[str]] = [Counter() for _ in taps]
        self.is_nested = False

    @cached_property
    def patterns(self) -> list[re.Pattern]:
        """The compiled patterns."""
        return [re.compile(tap.pattern) for tap in self.taps]

    def at(self, path: str) -> list[int]:
        """Returns the numbers of the taps on a module."""
        return [i for i, pattern in enumerate(self.patterns) if pattern.search(path)]

    def is_lenient_edit(self, number: int) -> bool:
        """Returns whether a tap edits, and computed values alone."""
        return self.taps[number].edit is not None and self.taps[number].lenient

    def nested(self) -> Readings:
        """Returns the same for code that JAX traces on its own: its values exist in there alone."""
        nested = copy.copy(self)
        nested.is_nested = True
        return nested

    def enter(
        self,
        numbers: Iterable[int],
        path: str,
        inputs: PyTree,
        read: Callable[[PyTree], PyTree],
        edit: Callable[[Callable, PyTree], PyTree],
    ) -> PyTree:
        """Returns what a module is called with, ``(args, kwargs)``; see ``leave``."""
        for i in numbers:
            if self.taps[i].inputs:
                inputs = self._tap(i, path, inputs, read, edit)
        return inputs

    def leave(
        self,
        numbers: Iterable[int],
        path: str,
        out: PyTree,
        read: Callable[[PyTree], PyTree],
        edit: Callable[[Callable, PyTree], PyTree],
    ) -> PyTree:
        """Returns the output of a module, with the edits of its taps.

        Args:
          numbers: the taps on it, by ``at``.
          path: the module's path.
          out: its output, as its framework has it.
          read: makes arrays of the output's tensors.
          edit: calls a function of arrays on the output, and makes tensors of its arrays.
        """
        for i in numbers:
            if not self.taps[i].inputs:
                out = self._tap(i, path, out, read, edit)
        return out

    def _tap(self, number: int, path: str, value: PyTree, read: Callable, edit: Callable) -> PyTree:
        function = self.taps[number].edit
        if function is not None:
            return edit(partial(function, self._numbered(number, path)), value)
        with suppress(*([Unsupported] if self.taps[number].lenient else [])):
            self._note(number, path, value, read)
        return value

    def _note(self, number: int, path: str, value: PyTree, read: Callable) -> None:
        if self.is_nested:
            raise Unsupported(
                f"{path} runs inside of a loop, a branch or a transformation",
                why="its values exist for one round of it alone",
                do="tap the module around it, or edit the module, which works in there",
            )
        array, pick = read(value), self.taps[number].pick
        self.values[number][self._numbered(number, path)] = pick(array) if pick else array

    def _numbered(self, number: int, path: str) -> str:
        """Counts a run of a module, and returns its path with the number of earlier runs."""
        count = self.runs[number][path]
        self.runs[number][path] += 1
        return f"{path}#{count}" if count else path

    @contextmanager
    def around(self) -> Iterator[None]:
        """Enters what the model's code runs in."""
        with ExitStack() as stack:
            for tap in self.taps:
                if tap.around is not None:
                    stack.enter_context(tap.around())
            yield

    def beside(self, out: PyTree, must_run: bool = True) -> PyTree:
        """Returns the output with the values beside it: ``(out, {path: value})``, once for each tap
        that is no edit.

        Raises:
          WrongArguments: a tap's modules ``must_run`` and did not.
        """
        for tap, values, runs in zip(self.taps, self.values, self.runs):
            if must_run and not runs and not tap.lenient:
                raise WrongArguments(
                    f"no module with {tap.pattern!r} in its path was called",
                    why="the model reads its weights, or runs another way with these arguments",
                    do="tap the module around it",
                )
            if tap.edit is None:
                out = out, values
        return out


def split_readings(taps: Sequence[Tap], out: PyTree) -> tuple[PyTree, list[dict[str, Any]]]:
    """Returns (the model's own output, the values of each tap that is no edit), the inverse of
    ``Readings.beside``.
    """
    values: list[dict[str, Any]] = []
    for _ in [tap for tap in taps if tap.edit is None]:
        out, value = out
        values.insert(0, value)
    return out, values
