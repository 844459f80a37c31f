"""New arrays."""

from anyjax.flax.codegen.python.templates import DTYPES, Call, writes


def typed(call: Call, default: str) -> str:
    """Returns ``, dtype=...`` where it is not the default."""
    call.args.get("dtype")  # the result has it
    name = DTYPES[call.out.dtype]
    return "" if name == default else f", {name}"


def shape_of(call: Call):
    sizes = [call.size(x) for x in call.out.shape]
    return sizes[0] if len(sizes) == 1 else sizes


@writes(*(f"{new}{x}" for x in ("zeros", "ones", "empty") for new in ("", "new_")))
@writes("zeros_like", "ones_like", "empty_like")
def filled(call: Call):
    """Writes zeros for uninitialised arrays: they are written to before they are read."""
    name = "ones" if "ones" in call.name else "zeros"
    return call.write(f"jnp.{name}(shape{typed(call, 'jnp.float32')})", shape=shape_of(call))


@writes("full", "new_full", "full_like", "fill", "zero")
def full(call: Call):
    value = call.args.get("fill_value" if "fill_value" in call.args else "value", 0)
    return call.write(f"jnp.full(shape, x{typed(call, '')})", shape=shape_of(call), x=value)


@writes("scalar_tensor")
def scalar(call: Call):
    return call.write(f"jnp.array(s{typed(call, '')})")


@writes("arange")
def arange(call: Call):
    arguments = ["end"]
    if call.args.get("start", 0) != 0 or call.args.get("step", 1) != 1:
        arguments = ["start", "end"] + ["step"] * (call.args.get("step", 1) != 1)
    floats = any(isinstance(call.args.get(x), float) for x in ("start", "end", "step"))
    dtype = typed(call, "jnp.float32" if floats else "jnp.int32")
    return call.write(f"jnp.arange({', '.join(arguments)}{dtype and ', dtype=' + dtype[2:]})")


@writes("linspace")
def linspace(call: Call):
    return call.write("jnp.linspace(start, end, steps)")


@writes("eye")
def eye(call: Call):
    rows, columns = call.out.shape
    for name in ("n", "m"):
        call.args.get(name)  # the result has them
    sizes = [call.size(x) for x in ((rows,) if rows == columns else (rows, columns))]
    dtype = typed(call, "jnp.float32")
    return call.write(f"jnp.eye(*sizes{dtype and ', dtype=' + dtype[2:]})", sizes=sizes)
