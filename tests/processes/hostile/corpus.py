"""The corpus: mutants of small valid files, always the same ones."""

from __future__ import annotations

from tests.processes.hostile import artifacts, checkpoints

CORPUS = [*checkpoints.mutants(), *artifacts.mutants()]
BY_NAME = {x.name: x for x in CORPUS}
assert len(BY_NAME) == len(CORPUS), "names are unique"
