"""Checkpoints of a run, by Orbax: written in the background, whole or not at all."""

from __future__ import annotations

import ast
import contextlib
import os
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tojax.errors import BadCheckpoint, NotWritten, OtherCheckpoint, ProcessLost, WrongValue
from tojax.multiprocess import gathered, is_loss
from tojax.train.data.agreement import check_mesh
from tojax.train.run.disk import begin, undisturbed, writing
from tojax.train.step.train_state import TrainState


class Best:
    """Which of two evaluations is better: ``"min eval_loss"``, ``"max eval_accuracy"``.

    Example:
      >>> best = Best("max eval_accuracy")
      >>> best.value({"eval_accuracy": 0.5}), best.better(0.6, 0.5)
      (0.5, True)
    """

    def __init__(self, said: str):
        self.mode, _, self.name = said.partition(" ")
        if self.mode not in ("min", "max") or not self.name:
            raise WrongValue(
                f"keep_best={said!r}",
                why="the best is the smallest or the largest of something",
                do='give "min eval_loss" or the like',
            )

    def value(self, metrics: dict[str, float]) -> float:
        """What decides, from all metrics."""
        if self.name not in metrics:
            raise WrongValue(
                f"there is no metric {self.name!r}",
                why=f"there are {', '.join(metrics)}",
                do="give evaluate=, whose metrics are called eval_..., or another name",
            )
        return float(metrics[self.name])

    def of(self, metrics: dict[int, dict[str, float] | None]) -> int | None:
        """The best step, None if no step has metrics."""
        known = {step: self.value(found) for step, found in metrics.items() if found}
        pick = min if self.mode == "min" else max
        return pick(known, key=known.__getitem__) if known else None

    def better(self, new: float, old: float | None) -> bool:
        """Whether the new value is."""
        return old is None or (new < old if self.mode == "min" else new > old)


class Checkpoints:
    """Those of one folder: the last ``keep``, and the best if it is known what that is; without
    ``keep`` they are only read, also while a run writes there.

    Raises:
      NotWritten: the folder cannot be written to.
    """

    def __init__(self, folder: str | os.PathLike, keep: int | None, best: Best | None = None):
        import orbax.checkpoint as ocp

        self.folder = Path(folder).absolute() / "checkpoints"
        self.args, options = ocp.args, ocp.CheckpointManagerOptions
        if keep is None:
            self.manager = ocp.CheckpointManager(self.folder, options=options(create=False))
            return
        policies = ocp.checkpoint_managers
        kept: list[Any] = [policies.LatestN(keep)]
        given: dict[str, Any] = {}
        if best is not None:
            order: dict[str, Any] = {"reverse": best.mode == "min", "n": 1}
            order |= {"keep_checkpoints_without_metrics": False}
            kept += [policies.BestN(get_metric_fn=best.value, **order)]
            given = {"best_fn": best.value, "best_mode": best.mode}  # so that metrics are kept
        policy = policies.AnyPreservationPolicy(kept)
        with writing(self.folder):
            begin(self.folder)
            given |= {"preservation_policy": policy, "enable_background_delete": False}
            self.manager = ocp.CheckpointManager(self.folder, options=options(**given))

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is not None and issubclass(kind, ProcessLost):
            return  # nothing can be finished without it
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            for end in (self.finish, self.manager.close):
                with contextlib.suppress(Exception):  # of what was interrupted halfway
                    end()
            return
        with contextlib.nullcontext() if kind is None else contextlib.suppress(NotWritten):
            self.finish()
        self.manager.close()

    def finish(self) -> None:
        """Waits for what is being written."""
        with undisturbed(), writing(self.folder):
            self.manager.wait_until_finished()

    def save(
        self, state: TrainState, progress: Any, metrics: dict[str, float] | None = None
    ) -> None:
        """Begins to write; the state may be donated as soon as this returns."""
        saved = {"tree": described(state), "progress": progress, "metrics": metrics}
        args = {"state": self.args.StandardSave(state), "data": self.args.JsonSave(saved)}
        with undisturbed(), writing(self.folder):
            self.manager.save(
                int(state.step), args=self.args.Composite(**args), metrics=metrics, force=True
            )

    def restore(self, state: TrainState, which: int | None = None) -> tuple[TrainState, Any] | None:
        """(state, progress) of the last checkpoint or of one by its step, None if there is none.

        Raises:
          OtherCheckpoint: it is of another model or optimizer.
          BadCheckpoint: its files are damaged.
        """
        which = self.manager.latest_step() if which is None else which
        if which is None:
            return None
        data = self.data(which)
        target = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
        )
        target = joined(target, data["tree"])
        compare(data["tree"], described(target), self.folder / str(which))
        return self._read(which, state=self.args.StandardRestore(target)), data["progress"]

    def data(self, step: int) -> dict[str, Any]:
        """What is kept beside a state: description, progress, metrics."""
        return self._read(step, data=self.args.JsonRestore())

    def _read(self, step: int, **item: Any) -> Any:
        try:
            return self.manager.restore(step, args=self.args.Composite(**item))[next(iter(item))]
        except Exception as error:  # Orbax raises that class itself
            cause = error.__cause__ or error
            if is_loss(error) or isinstance(cause, (MemoryError, jax.errors.JaxRuntimeError)):
                raise
            raise BadCheckpoint(
                f"the checkpoint of step {step} cannot be read",
                where=str(self.folder / str(step)),
                why=" ".join(f"{type(cause).__name__}: {cause}".split())[:300],
                do="restore its files, or remove that folder: the checkpoint before it is the last",
            ) from error


def described(state: TrainState) -> dict[str, str]:
    """Every leaf by its path, with dtype and shape, and what the model is."""
    shown = lambda x: f"{x.dtype}{list(x.shape)}"
    leaves = jax.tree_util.tree_leaves_with_path(state)
    name = {"the model": state.model.source.name}
    return name | {jax.tree_util.keystr(path): shown(leaf) for path, leaf in leaves}


def joined(target: TrainState, saved: dict[str, str]) -> TrainState:
    """The target with the saved entries of the model's state that are not in it yet: what code
    keeps in attributes joins the state in the first step.
    """
    more: dict[str, Any] = {}
    for path, shown in saved.items():
        if found := re.fullmatch(r"\.model\.state\[('.*'|\".*\")\]", path):
            dtype, _, shape = shown.partition("[")
            sizes, place = ast.literal_eval(f"[{shape}"), target.step.sharding
            name = ast.literal_eval(found[1])
            more[name] = jax.ShapeDtypeStruct(sizes, jnp.dtype(dtype), sharding=place)
    model = target.model
    return target.replace(model=model.with_state(more | model.state))


def compare(saved: dict[str, str], ours: dict[str, str], where: Path) -> None:
    """Raises OtherCheckpoint where two descriptions differ."""
    differ = [k for k in {**saved, **ours} if saved.get(k) != ours.get(k)]
    if differ:
        lines = [f"{k}: {saved.get(k, 'absent')}, here {ours.get(k, 'absent')}" for k in differ[:5]]
        more = f"; and {len(differ) - 5} more" if len(differ) > 5 else ""
        raise OtherCheckpoint(
            "the checkpoint is of another model or optimizer",
            where=str(where),
            why="; ".join(lines) + more,
            do="give the model and optimizer that it was trained with, or another folder",
        )


def restore(folder: str | os.PathLike, state: TrainState, which: int | str = "last") -> TrainState:
    """A state from a folder that ``fit`` trained in, or trains in: nothing in it is changed.

    Args:
      folder: the folder.
      state: one of the same model and optimizer, as ``TrainState.create`` makes it; its arrays'
        shardings are those of the result.
      which: "last", "min eval_loss" and the like for the best of those kept, or a step.

    Raises:
      BadCheckpoint: there is none, or its files are damaged.
      OtherCheckpoint: it is of another model or optimizer.
      WrongArguments: several processes, and the state is not on a mesh of all of them.

    Example:
      >>> import numpy as np, optax, tempfile, torch
      >>> model, tx = tojax.from_torch(torch.nn.Linear(3, 1)), optax.sgd(0.1)
      >>> step = tojax.train.make_step(lambda model, x: (model(x) ** 2).mean(), tx)
      >>> new = lambda: tojax.train.TrainState.create(model, tx)
      >>> folder = tempfile.mkdtemp()
      >>> _ = tojax.train.fit(new(), step, [np.ones((2, 3), np.float32)] * 4, folder=folder)
      >>> int(tojax.train.restore(folder, new()).step)
      4
    """
    check_mesh(state.params)
    there = gathered([(Path(folder) / "checkpoints").is_dir()])[:, 0]
    if not there.all():  # where some see it they would wait for the others
        raise _none(f"{folder}, in processes {np.flatnonzero(~there).tolist()}")
    best = Best(which) if isinstance(which, str) and which != "last" else None
    with Checkpoints(folder, keep=None) as kept:
        number = which if isinstance(which, int) else None
        if best is not None:
            number = best.of({n: kept.data(n)["metrics"] for n in kept.manager.all_steps()})
        if which == "last":
            number = kept.manager.latest_step()
        found = kept.restore(state, number) if number in kept.manager.all_steps() else None
    if found is None:
        raise _none(folder)
    return found[0]


def _none(folder: Any) -> BadCheckpoint:
    return BadCheckpoint(
        "there is no such checkpoint",
        where=str(folder),
        why="fit writes one after every so many steps, and keeps the last few",
        do="look into its folder checkpoints",
    )
