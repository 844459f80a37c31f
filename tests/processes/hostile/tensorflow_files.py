"""Mutants of SavedModels and of Keras files."""

from __future__ import annotations

import base64
import io
import json
import marshal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.processes.hostile import mutators as m
from tests.processes.hostile.artifacts import with_entry
from tests.processes.hostile.checkpoints import DEEP, VALUES, numbered, of_bytes
from tests.processes.hostile.mutators import Change, Mutant

# SavedModels


def proto(function: Callable[[Any, Path], None]) -> Change:
    """Changes the proto of a SavedModel."""

    def change(folder: Path, rng: object) -> None:
        from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

        file = folder / "saved_model.pb"
        message = SavedModel.FromString(file.read_bytes())
        function(message, folder)
        file.write_bytes(message.SerializeToString())

    return change


def functions(message: Any) -> Iterator[Any]:
    return (f for meta in message.meta_graphs for f in meta.graph_def.library.function)


def other_op(name: str) -> Change:
    def function(message: Any, folder: Path) -> None:
        for node in (x for f in functions(message) for x in f.node_def):
            node.op = name if node.op == "Relu" else node.op

    return proto(function)


def writes(message: Any, folder: Path) -> None:
    """Adds an operator that writes a file to the function that is called."""
    marker = str(folder.parent / m.OUTSIDE / m.MARKER).encode()
    for f in functions(message):
        if any(node.op == "Relu" for node in f.node_def):
            for name, value in {"file": marker, "text": b"x"}.items():
                node = f.node_def.add(name=name, op="Const")
                node.attr["dtype"].type = 7
                node.attr["value"].tensor.dtype = 7
                node.attr["value"].tensor.tensor_shape.SetInParent()
                node.attr["value"].tensor.string_val.append(value)
            f.node_def.add(name="write", op="WriteFile", input=["file:output:0", "text:output:0"])
            f.control_ret["write"] = "write"
            f.signature.control_output.append("write")


def recursive(message: Any, folder: Path) -> None:
    for f in functions(message):
        for node in f.node_def:
            if node.op == "Relu":
                node.op = "PartitionedCall"
                node.attr["f"].func.name = f.signature.name


def object_cycle(message: Any, folder: Path) -> None:
    for meta in message.meta_graphs:
        for i, node in enumerate(meta.object_graph_def.nodes):
            for child in node.children:
                child.node_id = i


def object_far(message: Any, folder: Path) -> None:
    for meta in message.meta_graphs:
        for child in meta.object_graph_def.nodes[0].children:
            child.node_id = 10**6


def large_variable(message: Any, folder: Path) -> None:
    for meta in message.meta_graphs:
        for node in meta.object_graph_def.nodes:
            if node.WhichOneof("kind") == "variable":
                node.variable.shape.dim[0].size = 2**40


def large_constant(message: Any, folder: Path) -> None:
    for node in (x for f in functions(message) for x in f.node_def):
        if node.op == "Const" and node.attr["dtype"].type == 1:
            node.attr["value"].tensor.tensor_shape.dim[0].size = 2**40
            node.attr["value"].tensor.tensor_content = b""
            node.attr["value"].tensor.float_val.append(1.0)


def savedmodel() -> Iterator[Mutant]:
    """Yields changes of SavedModels."""
    yield from of_bytes("savedmodel", 30, 6, "saved_model.pb")
    yield from of_bytes("savedmodel", 0, 6, "variables.index")
    yield from numbered("index", "savedmodel", 20, m.flip("variables.index"))
    yield from numbered("data", "savedmodel", 12, m.flip("variables.data*"))
    yield from numbered("fingerprint", "savedmodel", 4, m.flip("fingerprint.pb"))
    for name in ("Nothing", "PyFunc", "ReadFile", "Sin", "Selu"):
        yield Mutant(f"savedmodel-op-{name}", "savedmodel", other_op(name))
    protos = dict(recursive=recursive, cycle=object_cycle, far=object_far,
                  variable=large_variable, constant=large_constant, writes=writes)  # fmt: skip
    for name, function in protos.items():
        yield Mutant(f"savedmodel-proto-{name}", "savedmodel", proto(function))
    for i, pattern in enumerate(("saved_model.pb", "variables.index", "variables.data*")):
        for instead in ("nothing", "folder", "loop", "dangling", "pipe", "zero"):
            change = m.lose(pattern, instead)
            yield Mutant(f"savedmodel-lose-{i}-{instead}", "savedmodel", change, True)


# Keras


def marshalled(marker: Path) -> str:
    """Returns the code of a lambda as Keras stores it; it writes the marker."""
    function = eval(f"lambda x: (open({str(marker)!r}, 'w').close(), x)[1]")
    return base64.b64encode(marshal.dumps(function.__code__)).decode()


def hostile_layers(marker: Path, outside: Path) -> dict[str, dict]:
    """Returns layers whose config would run code or read files if it were trusted."""
    function = {"class_name": "__lambda__", "config": {"code": marshalled(marker), "defaults": None,
                                                       "closure": None}}  # fmt: skip
    command = {"command": f"touch {marker}"}
    layer = lambda module, name, config, registered=None: {
        "module": module, "class_name": name, "config": config, "registered_name": registered,
        "build_config": {"input_shape": [None, 2]},
    }  # fmt: skip
    wrapped = {"name": "l", "function": function, "trainable": True}
    vocabulary = {"name": "s", "vocabulary": str(outside / "vocabulary.txt")}
    return {
        "lambda": layer("keras.layers", "Lambda", wrapped),
        "module": layer("keras.src.layers.core.lambda_layer", "Lambda", wrapped),
        "registered": layer("builtins", "Lambda", wrapped, "keras>Lambda"),
        "system": layer("os", "system", command, "system"),
        "popen": layer("subprocess", "Popen", {"args": ["touch", str(marker)]}),
        "eval": layer("builtins", "function", "eval"),
        "import": layer("anyjax_payload", "Layer", {}),
        "package": layer("anyjax_payload.layers", "Layer", {}, "anyjax_payload>Layer"),
        "numpy": layer("numpy", "load", {"file": str(outside / "x.npy"), "allow_pickle": True}),
        "get_file": layer("keras.utils", "get_file", {"fname": "x", "origin": "http://localhost"}),
        "torch": layer("keras.layers", "TorchModuleWrapper", {"module": "gASVAA==", "name": "t"}),
        "unsafe": layer("keras.config", "enable_unsafe_deserialization", {}),
        "load_model": layer("keras.models", "load_model", {"filepath": "x", "safe_mode": False}),
        "lookup": layer("keras.layers", "StringLookup", vocabulary),
        "vectorization": layer("keras.layers", "TextVectorization", vocabulary),
        "integers": layer("keras.layers", "IntegerLookup", vocabulary),
        "activation": layer("keras.layers", "Activation", {"activation": function}),
        "initializer": layer("keras.layers", "Dense", {"units": 2, "kernel_initializer": function}),
        "units": layer("keras.layers", "Dense", {"units": 10**9, "name": "d"}),
        "embedding": layer("keras.layers", "Embedding", {"input_dim": 10**9, "output_dim": 10**3}),
        "savedmodel": layer("keras.layers", "TFSMLayer", {"filepath": str(outside), "name": "t"}),
    }  # fmt: skip


LAYERS = tuple(hostile_layers(Path("a"), Path("b")))


def with_layer(config: dict, folder: Path, name: str) -> dict:
    outside = folder.parent / m.OUTSIDE
    layer = hostile_layers(outside / m.MARKER, outside)[name]
    config["config"]["layers"].append(layer)
    return config


def json_bytes(function: Callable[[dict, Path], dict]) -> Callable[[bytes, Path], bytes]:
    return lambda data, folder: json.dumps(function(json.loads(data), folder)).encode()


def h5_attribute(function: Callable[[dict, Path], dict]) -> Change:
    """Changes the config inside of a HDF5 file."""

    def change(folder: Path, rng: object) -> None:
        import h5py

        with h5py.File(folder / "model.h5", "r+") as file:
            config = json.loads(file.attrs["model_config"])
            file.attrs["model_config"] = json.dumps(function(config, folder))

    return change


def in_file(function: Callable[[Any, Path], None], format: str) -> Change:
    """Changes the weights, which are HDF5 in both formats."""

    def inside(data: bytes, folder: Path) -> bytes:
        import h5py

        buffer = io.BytesIO(data)
        with h5py.File(buffer, "r+") as file:
            function(file, folder)
        return buffer.getvalue()

    if format == "keras":
        return m.archive({"model.weights.h5": inside})
    return lambda folder, rng: (folder / "model.h5").write_bytes(
        inside((folder / "model.h5").read_bytes(), folder)
    )


def datasets(file: Any) -> list[str]:
    import h5py

    names: list[str] = []
    file.visititems(lambda k, v: names.append(k) if isinstance(v, h5py.Dataset) else None)
    return names


def instead_of_first(make: Callable[[Any, str, Any, Path], None]) -> Callable[[Any, Path], None]:
    def function(file: Any, folder: Path) -> None:
        name = datasets(file)[0]
        old = file[name][()]
        del file[name]
        make(file, name, old, folder)

    return function


def external_data(file: Any, name: str, old: Any, folder: Path) -> None:
    raw = folder.parent / m.OUTSIDE / "raw"
    raw.write_bytes(old.tobytes())
    file.create_dataset(name, old.shape, old.dtype, external=[(str(raw), 0, old.nbytes)])


def external_link(file: Any, name: str, old: Any, folder: Path) -> None:
    import h5py

    other = folder.parent / m.OUTSIDE / "other.h5"
    with h5py.File(other, "w") as target:
        target["x"] = old * 0 + 7
    file[name] = h5py.ExternalLink(str(other), "x")


def virtual(file: Any, name: str, old: Any, folder: Path) -> None:
    import h5py

    external_link(file, name, old, folder)
    del file[name]
    layout = h5py.VirtualLayout(old.shape, old.dtype)
    other = folder.parent / m.OUTSIDE / "other.h5"
    layout[...] = h5py.VirtualSource(str(other), "x", old.shape)
    file.create_virtual_dataset(name, layout)


def soft_link(file: Any, name: str, old: Any, folder: Path) -> None:
    import h5py

    file[name] = h5py.SoftLink("/" + name)


def shape_bomb(file: Any, name: str, old: Any, folder: Path) -> None:
    file.create_dataset(name, (10**5, 10**5), "f4", chunks=(100, 100), compression="gzip")


def other_shape(file: Any, name: str, old: Any, folder: Path) -> None:
    file[name] = old.ravel()[:-1]


def other_values(file: Any, name: str, old: Any, folder: Path) -> None:
    file[name] = old + 1


def text_values(file: Any, name: str, old: Any, folder: Path) -> None:
    file[name] = "text"


WEIGHTS = {
    "external": external_data, "link": external_link, "virtual": virtual, "loop": soft_link,
    "bomb": shape_bomb, "shape": other_shape, "values": other_values, "text": text_values,
}  # fmt: skip
ALLOWED = {"values", "units", "embedding", "eval", "registered"}


def keras() -> Iterator[Mutant]:
    """Yields changes of Keras files."""
    yield from of_bytes("keras", 40, 8)
    yield from of_bytes("h5", 40, 8)
    for name in LAYERS:
        add = partial(with_layer, name=name)
        refused = name not in ALLOWED
        change = m.archive({"config.json": json_bytes(add)})
        yield Mutant(f"keras-layer-{name}", "keras", change, refused)
        yield Mutant(f"h5-layer-{name}", "h5", h5_attribute(add), refused)
    for name, make in WEIGHTS.items():
        for format in ("keras", "h5"):
            change = in_file(instead_of_first(make), format)
            yield Mutant(f"{format}-weights-{name}", format, change, name not in ALLOWED)
    for key in ("config.json", "metadata.json", "model.weights.h5"):
        yield Mutant(f"keras-without-{key}", "keras", m.archive({key: None}))
        yield Mutant(f"keras-bomb-{key}", "keras", m.bomb(key, 2**30), key != "metadata.json")
        for name, text in {"deep": DEEP, "none": "", "list": "[]", "null": "null"}.items():
            change = m.archive({key: lambda data, folder, text=text: text.encode()})
            yield Mutant(f"keras-content-{name}-{key}", "keras", change)
    for i, path in enumerate(("../outside/x", "/tmp/../x", "assets/../../outside/x", "a" * 60000)):
        yield Mutant(f"keras-path-{i}", "keras", m.archive({}, {path: b"x"}))
    top = {k: v for k, v in VALUES.items() if k in ["text", "null", "list", "object", "large"]}
    for key in ("module", "class_name", "config", "registered_name", "build_config"):
        for name, value in top.items():
            function = json_bytes(partial(with_entry, key=key, value=value))
            change = m.archive({"config.json": function})
            yield Mutant(f"keras-{key}-{name}", "keras", change)
    for format in ("keras", "h5"):
        for instead in ("nothing", "folder", "loop", "dangling", "pipe", "zero"):
            yield Mutant(f"{format}-file-{instead}", format, m.lose("*", instead), True)
        change = lambda folder, rng: m.pickled(folder, m.files_in(folder)[0].name)
        yield Mutant(f"{format}-pickle", format, change, True)


def mutants() -> Iterator[Mutant]:
    """Yields all of them."""
    yield from savedmodel()
    yield from keras()
