"""Formats of transformers' own exporters: ``jax``, a folder that ``anyjax.load`` reads, and
``stablehlo``, a file that ``anyjax.from_stablehlo`` reads. Both hold the weights.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import numpy as np
import torch
from torch.utils import _pytree as pytree

from anyjax.errors import Unsupported
from anyjax.export import flat
from anyjax.frontends import load
from anyjax.model import Model
from anyjax.private_names import need
from anyjax.saved import PLATFORMS
from anyjax.saved.programs import exported
from anyjax.stablehlo import from_stablehlo
from anyjax.torch import from_torch
from anyjax.torch.core import interop
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from transformers.exporters import ExportMetadata

FEATURE = "transformers' exporters"
HfExporter: Any = need("transformers.exporters:HfExporter", FEATURE)
ModelRunner: Any = need("transformers.exporters:ModelRunner", FEATURE)
ExportConfigMixin: Any = need("transformers.exporters:ExportConfigMixin", FEATURE)
register_backend = need("transformers.exporters:register_backend", FEATURE)
backends = need("transformers.exporters.auto:EXPORT_BACKENDS", FEATURE)
metadata_of = need("transformers.exporters.metadata:build_export_metadata", FEATURE)
record_outputs = need("transformers.exporters.metadata:record_output_structure", FEATURE)
prepare = need("transformers.exporters.utils:prepare_for_export", FEATURE)
register_caches = need(
    "transformers.exporters.exporter_dynamo:register_cache_pytrees_for_model", FEATURE
)


def register_exporters() -> None:
    """Adds the formats ``jax`` and ``stablehlo`` to transformers' exporters; once is enough.

    ``AutoHfExporter`` and ``ExportedModel`` then know them. The configs are ``JaxConfig`` and
    ``StableHLOConfig`` of ``anyjax.hf.exporters``: ``shapes``, ``constraints`` and ``platforms``
    are those of ``model.save``. What ``export`` gives runs in JAX and returns torch tensors in the
    model's own output class; models are exported in evaluation mode.

    Raises:
      IncompatibleVersion: the installed transformers has no exporters.

    Example:
      >>> from transformers import BertConfig, BertModel
      >>> from transformers.exporters import AutoHfExporter
      >>> anyjax.hf.register_exporters()
      >>> sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
      >>> model = BertModel(BertConfig(**sizes, intermediate_size=8, vocab_size=9))
      >>> exporter = AutoHfExporter.from_config({"export_format": "jax"})
      >>> exported = exporter.export(model, {"input_ids": torch.tensor([[1, 2, 3]])}, {})
      >>> folder = tempfile.mkdtemp()
      >>> exported.save_pretrained(folder)
      >>> anyjax.load(folder)(input_ids=np.array([[1, 2, 3]])).last_hidden_state.shape
      (1, 3, 8)
    """
    for exporter, runner in ((JaxExporter, JaxRunner), (StableHLOExporter, StableHLORunner)):
        backend = backends.get(exporter.export_format)
        if backend is None or backend.exporter is not exporter:
            register_backend(exporter, runner)


@dataclass
class JaxConfig(ExportConfigMixin):
    """Options of the format ``jax``, as ``model.save`` has them."""

    export_format: str = "jax"
    shapes: dict[str, str] | None = None
    constraints: Sequence[str] = ()
    platforms: Sequence[str] = field(default=PLATFORMS)


@dataclass
class StableHLOConfig(JaxConfig):
    """Options of the format ``stablehlo``."""

    export_format: str = "stablehlo"


@dataclass
class Program:
    """A model to be written, and the call that is."""

    model: Model
    inputs: Mapping[str, PyTree]
    config: JaxConfig

    def __call__(self, **inputs: PyTree) -> PyTree:
        """Returns the model's outputs."""
        return self.model(**inputs)


class _Exporter(HfExporter):
    """Exports one graph; the decoding loop as a whole is anyjax's own."""

    required_packages = ["torch", "jax"]

    def export_program(
        self,
        model: torch.nn.Module,
        sample_inputs: MutableMapping[str, torch.Tensor],
        config: JaxConfig,
    ) -> tuple[Program, ExportMetadata]:
        """Converts a model, and records the call and the structure of its outputs."""
        modes = [(module, module.training) for module in model.modules()]
        model, inputs, flags = prepare(model, dict(sample_inputs))
        flags = {name: value for name, value in flags.items() if value is not None}
        register_caches(model)
        try:
            model.eval()
            with torch.no_grad():
                outputs = model(**inputs, **flags)
            converted = from_torch(model)
        finally:
            for module, mode in modes:
                module.training = mode
        in_spec = pytree.tree_flatten(((), {**inputs}))[1]
        spec = SimpleNamespace(in_spec=in_spec, out_spec=pytree.tree_flatten(outputs)[1])
        call = SimpleNamespace(call_spec=spec)
        metadata = metadata_of(model, inputs, call, self.required_packages)
        record_outputs(metadata, outputs)
        metadata.in_constants |= flags
        arrays = pytree.tree_map_only(torch.Tensor, interop.to_jax, {**inputs})
        return Program(converted, arrays | flags, config), metadata

    def export_for_generation(self, *args: object, **kwargs: object) -> NoReturn:
        """Raises Unsupported: the loop is saved whole, not step by step."""
        raise Unsupported(
            f"export_for_generation to {self.export_format}",
            why="anyjax saves the decoding loop as one program",
            do="anyjax.from_torch(model).save(folder, ids, generate={...}), for anyjax.generate",
        )


class _Runner(ModelRunner):
    """Runs a program in JAX, on torch tensors."""

    constants: Mapping[str, Any]

    def __init__(self, program: Program | Model, metadata: ExportMetadata):
        super().__init__(metadata)
        self.program, self.constants = program, metadata.in_constants
        count = self.out_spec.num_leaves
        places = pytree.tree_unflatten([np.array(i) for i in range(count)], self.out_spec)
        names = {int(place): name for name, place in flat.named(places)}
        self.names = [names[i] for i in range(count) if i not in self.out_constants]

    @property
    def device(self) -> torch.device:
        """The device of the results."""
        return torch.device("cpu")

    @classmethod
    def from_program(
        cls, program: Program | Model, metadata: ExportMetadata, device: object = None
    ) -> _Runner:
        """Returns the runner of a program."""
        if device is not None and torch.device(device).type != "cpu":
            raise Unsupported(
                f"an exported program on {device}",
                why="JAX chooses the device, torch tensors come from the CPU's memory",
                do="leave device out; JAX_PLATFORMS says where JAX runs",
            )
        return cls(program, metadata)

    def __call__(self, share_inputs: bool = True, share_outputs: bool = False, **kwargs) -> Any:
        arrays = pytree.tree_map_only(torch.Tensor, interop.to_jax, kwargs)
        outputs = dict(flat.named(self.program(**self.constants | arrays)))
        return self.unflatten([interop.to_torch(outputs[name]) for name in self.names])


class JaxRunner(_Runner):
    """Runs a model that ``anyjax.load`` reads."""


class StableHLORunner(_Runner):
    """Runs a program that takes arrays alone."""

    def __init__(self, program: Program | Model, metadata: ExportMetadata):
        super().__init__(program, metadata)
        if not isinstance(program, Program):
            self.constants = {}


class JaxExporter(_Exporter):
    """Writes what ``model.save`` writes, beside transformers' own files."""

    export_format = "jax"
    config_class = JaxConfig
    program_suffix = ".json"  # model.json, and the files that it lists
    FILES = ("params.safetensors", "state.safetensors", "call-0.jax")

    @classmethod
    def save_program(cls, program: Program, path: str | Path) -> None:
        """Writes model.json and the files that it lists."""
        path = Path(path).expanduser()
        options = program.config
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            folder = Path(scratch) / "model"
            program.model.save(
                folder,
                shapes=options.shapes,
                constraints=options.constraints,
                platforms=options.platforms,
                **program.inputs,
            )
            for file in folder.iterdir():
                file.rename(path.parent / file.name)

    @classmethod
    def load_program(cls, path: str | Path) -> Model:
        """Reads the model."""
        return load(Path(path).expanduser().parent)

    @classmethod
    def program_files(cls, filename: str) -> list[str]:
        """Returns the names of the files of a program."""
        return [filename, *cls.FILES]


class StableHLOExporter(_Exporter):
    """Writes one program, in which the weights are constants."""

    export_format = "stablehlo"
    config_class = StableHLOConfig
    program_suffix = ".stablehlo"

    @classmethod
    def save_program(cls, program: Program, path: str | Path) -> None:
        """Writes a program of named arrays."""
        options, model = program.config, program.model
        call = flat.call_of(model, (), dict(program.inputs), options.shapes, options.constraints)

        def function(**arrays: jax.Array) -> dict[str, jax.Array]:
            out = call(model.params, model.state, *(arrays[name] for name in call.names))
            return dict(zip(call.outputs, out))

        export = exported(function, options.platforms)
        Path(path).expanduser().write_bytes(export(**dict(zip(call.names, call.specs))).serialize())

    @classmethod
    def load_program(cls, path: str | Path) -> Model:
        """Reads the program."""
        return from_stablehlo(path)
