"""The floors of the house: what may import what."""

# Imports go down this list. "" is the facade, tojax/__init__.py, which loads what lies below it.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "trees", "warn_once", "numerics"),
    ("dtypes", "multiprocess", "private_names", "table"),
    ("jaxprs", "source"),
    ("calls", "saved"),
    ("model",),
    ("torch", "tensorflow", "stablehlo"),
    ("frontends",),
    ("transforms", "parallel", "parity", "flax", "train", "export"),
    ("hf",),
    ("",),
    ("cli", "__main__"),
)
FRONTENDS = FLOORS[5]  # they do not know each other, but for:
NEIGHBOURS = {("tensorflow", "stablehlo")}
# The floors inside of parts: rooms and the files beside them.
ROOMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "tojax.torch": (
        ("core",),
        ("ops", "aliasing", "data_dependent", "state"),
        ("control_flow",),
        ("autograd",),
        ("compat",),
        ("engine", "arguments"),
        ("eager",),
        ("source",),
        ("torchax", "jax_function"),
        ("dynamo", "flax_module", "interop"),
        ("",),
    ),
    "tojax.torch.state": (
        ("closures", "none_attributes", "torchscript"),
        ("attribute_tree",),
        ("collected", "module_copy", "optim", "uncarried"),
        ("attributes", "snapshot"),
        ("slots",),
        ("",),
    ),
    "tojax.torch.dynamo": (("interpreter", "layout"), ("program",), ("backend",), ("",)),
    "tojax.torch.data_dependent": (
        ("int64", "source_line", "split_of_concat", "traced_index", "traced_numbers"),
        ("assertions", "overflow_guards", "padded"),
        ("value_queries",),
        ("",),
    ),
    "tojax.torch.eager": (
        ("random_keys", "tensor"),
        ("factories", "gradients", "host_reads", "moved", "views"),
        ("fallback",),
        ("programs", "writes"),
        ("dispatch",),
        ("mode",),
        ("crossing", "environment"),
        ("jittable",),
        ("",),
    ),
    "tojax.tensorflow": (
        ("core",),
        ("ops", "state"),
        ("control_flow",),
        ("engine", "savedmodel"),
        ("source",),
        ("preprocessing", "compat", ""),
    ),
    "tojax.stablehlo": (
        ("core",),
        ("ops",),
        ("control_flow",),
        ("custom_calls",),
        ("engine",),
        ("source",),
        ("",),
    ),
    "tojax.flax": (("wrap", "codegen", "matching"), ("",)),
    "tojax.flax.codegen": (
        ("author", "python"),
        ("graph",),
        ("check", "ops"),
        ("module",),
        ("merge",),
        ("style",),
        ("_source",),
        ("",),
    ),
    "tojax.hf": (
        ("loading",),
        ("generation", "_save_pretrained"),
        ("_pipeline", "estimate_call", "exporters"),
        ("",),
    ),
    "tojax.hf.generation": (
        ("request",),
        ("decode", "saved_loop"),
        ("job",),
        ("_generate",),
        ("",),
    ),
    "tojax.train": (("data",), ("step",), ("run",), ("adapters",), ("",)),
    "tojax.parity": (("sides",), ("judge",), ("reproduce", "report"), ("_verify",), ("",)),
    "tojax.parallel": (
        ("_initialize", "collectives", "forward", "launch", "plans"),
        ("_shard", "batches"),
        ("_explain", "estimation"),
        ("_estimate",),
        ("",),
    ),
    "tojax.parallel.estimation": (
        ("chips", "divide"),
        ("cost",),
        ("call",),
        ("compiled",),
        ("report",),
        ("",),
    ),
}
# Parts that could be packages of their own, and all that they import of ours.
FENCES = {
    "tojax.flax.codegen": ("tojax.errors", "tojax.warn_once", "tojax.torch.engine.callback"),
    "tojax.tensorflow": (
        *(f"tojax.{part}" for name in FLOORS[:5] for part in name),
        "tojax.stablehlo",
    ),
    "tojax.parallel.estimation": (
        *(f"tojax.{part}" for name in FLOORS[:5] for part in name),
        "tojax.parallel",
        "tojax.transforms",
    ),
}
