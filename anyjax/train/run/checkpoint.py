"""Checkpoints of a run, by Orbax: written in the background, atomically."""

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

from anyjax.errors import BadCheckpoint, NotWritten, OtherCheckpoint, ProcessLost, WrongValue
from anyjax.multiprocess import gathered, is_loss
from anyjax.saved.checksum import check_signature, signed
from anyjax.train.data.agreement import check_mesh
from anyjax.train.run import checksums
from anyjax.train.run.disk import deferring_interrupts, prepare_folder, writing
from anyjax.train.step.train_state import TrainState


class Best:
    """A criterion for the best checkpoint: ``"min eval_loss"``, ``"max eval_accuracy"``.

    Example:
      >>> best = Best("max eval_accuracy")
      >>> best.value({"eval_accuracy": 0.5}), best.better(0.6, 0.5)
      (0.5, True)
    """

    def __init__(self, criterion: str):
        self.mode, _, self.name = criterion.partition(" ")
        if self.mode not in ("min", "max") or not self.name:
            raise WrongValue(
                f"keep_best={criterion!r}",
                why="the best is the smallest or the largest of something",
                do='give "min eval_loss" or the like',
            )

    def value(self, metrics: dict[str, float]) -> float:
        """Returns the metric that is compared.

        Raises:
          WrongValue: there is no such metric.
        """
        if self.name not in metrics:
            raise WrongValue(
                f"there is no metric {self.name!r}",
                why=f"there are {', '.join(metrics)}",
                do="give evaluate=, whose metrics are called eval_..., or another name",
            )
        return float(metrics[self.name])

    def best_step(self, metrics: dict[int, dict[str, float] | None]) -> int | None:
        """Returns the best step, None if no step has metrics."""
        values = {step: self.value(of_step) for step, of_step in metrics.items() if of_step}
        pick = min if self.mode == "min" else max
        return pick(values, key=values.__getitem__) if values else None

    def better(self, new: float, old: float | None) -> bool:
        """Returns True if the new value is better than the old one."""
        return old is None or (new < old if self.mode == "min" else new > old)


class Checkpoints:
    """The checkpoints in a folder: the last ``keep``, and the best one if ``best`` is given. With
    ``keep=None`` the folder is only read, also while a run writes there.

    Raises:
      NotWritten: the folder cannot be written to.
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int | None, best: Best | None = None):
        import orbax.checkpoint as ocp

        self.folder = Path(folder).expanduser().absolute() / "checkpoints"
        self.args, options = ocp.args, ocp.CheckpointManagerOptions
        if keep is None:
            self.manager = ocp.CheckpointManager(self.folder, options=options(create=False))
            return
        policies = ocp.checkpoint_managers
        preserved: list[Any] = [policies.LatestN(keep)]
        settings: dict[str, Any] = {}
        if best is not None:
            order: dict[str, Any] = {"reverse": best.mode == "min", "n": 1}
            order |= {"keep_checkpoints_without_metrics": False}
            preserved += [policies.BestN(get_metric_fn=best.value, **order)]
            settings = {"best_fn": best.value, "best_mode": best.mode}  # so that metrics are kept
        policy = policies.AnyPreservationPolicy(preserved)
        with writing(self.folder):
            prepare_folder(self.folder)
            settings |= {"preservation_policy": policy, "enable_background_delete": False}
            self.manager = ocp.CheckpointManager(self.folder, options=options(**settings))

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is not None and issubclass(kind, ProcessLost):
            return  # nothing can be finished without it
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            for end in (self.finish, self.manager.close):
                with contextlib.suppress(Exception):  # a save that was interrupted halfway
                    end()
            return
        with contextlib.nullcontext() if kind is None else contextlib.suppress(NotWritten):
            self.finish()
        self.manager.close()

    def finish(self) -> None:
        """Waits until the last checkpoint is written."""
        with deferring_interrupts(), writing(self.folder):
            self.manager.wait_until_finished()

    def save(
        self, state: TrainState, progress: object, metrics: dict[str, float] | None = None
    ) -> None:
        """Starts to write a checkpoint; the state may be donated as soon as this returns."""
        saved = {"tree": describe(state), "progress": progress, "metrics": metrics}
        saved = signed(saved | {"checksums": checksums.of_arrays(state)})
        args = {"state": self.args.StandardSave(state), "data": self.args.JsonSave(saved)}
        with deferring_interrupts(), writing(self.folder):
            self.manager.save(
                int(state.step), args=self.args.Composite(**args), metrics=metrics, force=True
            )

    def restore(self, state: TrainState, which: int | None = None) -> tuple[TrainState, Any] | None:
        """Returns (state, progress) of the last checkpoint, or of step ``which``; None if there is
        none.

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
        target = with_saved_state(target, data["tree"])
        check_same_tree(data["tree"], describe(target), self.folder / str(which))
        restored = self._read(which, state=self.args.StandardRestore(target))
        if (expected := data.get("checksums")) is not None:  # earlier versions wrote none
            actual = checksums.of_arrays(restored)
            if changed := [k for k, v in expected.items() if actual.get(k) != v]:
                raise self._unreadable(which, f"values were changed: {', '.join(changed[:5])}")
        return restored, data["progress"]

    def data(self, step: int) -> dict[str, Any]:
        """Reads the data beside the state: its description, progress, metrics."""
        data = self._read(step, data=self.args.JsonRestore())
        if not isinstance(data, dict) or not isinstance(data.get("tree"), dict):
            raise self._unreadable(step, "its data describes no state")
        try:
            check_signature(data)
        except ValueError as error:
            raise self._unreadable(step, str(error)) from None
        return data

    def _read(self, step: int, **item: Any) -> Any:
        try:
            return self.manager.restore(step, args=self.args.Composite(**item))[next(iter(item))]
        except Exception as error:  # Orbax raises that class itself
            cause = error.__cause__ or error
            if is_loss(error) or isinstance(cause, (MemoryError, jax.errors.JaxRuntimeError)):
                raise
            raise self._unreadable(step, f"{type(cause).__name__}: {cause}") from error

    def _unreadable(self, step: int, why: str) -> BadCheckpoint:
        return BadCheckpoint(
            f"the checkpoint of step {step} cannot be read",
            where=str(self.folder / str(step)),
            why=" ".join(why.split())[:300],
            do="restore its files, or remove that folder: the checkpoint before it is the last",
        )


def describe(state: TrainState) -> dict[str, str]:
    """Returns dtype and shape of every leaf by its path, and the name of the model."""
    shown = lambda x: f"{x.dtype}{list(x.shape)}"
    leaves = jax.tree_util.tree_leaves_with_path(state)
    name = {"the model": state.model.source.name}
    return name | {jax.tree_util.keystr(path): shown(leaf) for path, leaf in leaves}


def with_saved_state(target: TrainState, saved: dict[str, str]) -> TrainState:
    """Adds the saved entries of the model's state that the target lacks: attributes that forward
    sets join the state in the first step.
    """
    entries: dict[str, Any] = {}
    for path, shown in saved.items():
        if match := re.fullmatch(r"\.model\.state\[('.*'|\".*\")\]", path):
            dtype, _, shape = shown.partition("[")
            sizes, sharding = ast.literal_eval(f"[{shape}"), target.step.sharding
            name = ast.literal_eval(match[1])
            entries[name] = jax.ShapeDtypeStruct(sizes, jnp.dtype(dtype), sharding=sharding)
    model = target.model
    return target.replace(model=model.with_state(entries | model.state))


def check_same_tree(saved: dict[str, str], ours: dict[str, str], where: Path) -> None:
    """Raises OtherCheckpoint where two descriptions differ."""
    differ = [k for k in {**saved, **ours} if saved.get(k) != ours.get(k)]
    if differ:
        lines = [f"{k}: {saved.get(k, 'absent')}, here {ours.get(k, 'absent')}" for k in differ[:5]]
        further = f"; and {len(differ) - 5} more" if len(differ) > 5 else ""
        raise OtherCheckpoint(
            "the checkpoint is of another model or optimizer",
            where=str(where),
            why="; ".join(lines) + further,
            do="give the model and optimizer that it was trained with, or another folder",
        )


def restore(
    folder: str | os.PathLike[str], state: TrainState, which: int | str = "last"
) -> TrainState:
    """Reads a state from a folder that ``fit`` trained in, or trains in; the folder stays as it is.

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
      >>> model, tx = anyjax.from_torch(torch.nn.Linear(3, 1)), optax.sgd(0.1)
      >>> step = anyjax.train.make_step(lambda model, x: (model(x) ** 2).mean(), tx)
      >>> new = lambda: anyjax.train.TrainState.create(model, tx)
      >>> folder = tempfile.mkdtemp()
      >>> _ = anyjax.train.fit(new(), step, [np.ones((2, 3), np.float32)] * 4, folder=folder)
      >>> int(anyjax.train.restore(folder, new()).step)
      4
    """
    check_mesh(state.params)
    sees_folder = gathered([(Path(folder).expanduser() / "checkpoints").is_dir()])[:, 0]
    if not sees_folder.all():  # processes that see it would wait for the others
        raise _no_checkpoint(f"{folder}, in processes {np.flatnonzero(~sees_folder).tolist()}")
    best = Best(which) if isinstance(which, str) and which != "last" else None
    with Checkpoints(folder, keep=None) as checkpoints:
        steps = checkpoints.manager.all_steps()
        number = which if isinstance(which, int) else None
        if best is not None:
            number = best.best_step({n: checkpoints.data(n)["metrics"] for n in steps})
        if which == "last":
            number = checkpoints.manager.latest_step()
        restored = checkpoints.restore(state, number) if number in steps else None
    if restored is None:
        raise _no_checkpoint(folder)
    return restored[0]


def _no_checkpoint(folder: str | os.PathLike[str]) -> BadCheckpoint:
    return BadCheckpoint(
        "there is no such checkpoint",
        where=str(folder),
        why="fit writes one after every so many steps, and keeps the last few",
        do="look into its folder checkpoints",
    )
