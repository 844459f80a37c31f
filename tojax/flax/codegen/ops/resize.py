"""Pictures made larger or smaller."""

from tojax.flax.codegen.python.sizes import symbolic
from tojax.flax.codegen.python.templates import Call, writes


def factors(call: Call) -> list[float | None]:
    """What was given as the ratio of sizes, by dimension; None where the sizes tell it."""
    rank = call.out.ndim - 2
    given = call.args.get("scale_factors")
    if given is None:
        names = {
            1: ("scales",),
            2: ("scales_h", "scales_w"),
            3: ("scales_d", "scales_h", "scales_w"),
        }
        given = [call.args.get(name) for name in names[rank]]
    return list(given)


def sizes(call: Call) -> tuple[list, list]:
    """Sizes before and after, of the dimensions of the picture."""
    name = "input" if "input" in call.args else "self"
    return list(call.fake(name).shape[2:]), list(call.out.shape[2:])


def steps(call: Call, corners: bool = False) -> list:
    """How far apart the samples are, by dimension, in places of the input."""
    found = []
    for factor, before, after in zip(factors(call), *sizes(call)):
        ratio = {"a": call.size(before), "b": call.size(after)}
        if corners:
            found.append(call.write("(a - 1) / max(b - 1, 1)", **ratio))
        elif symbolic(before) == symbolic(after):
            found.append(1.0)
        elif factor is not None and symbolic(before) * factor != symbolic(after):
            found.append(1 / factor)
        else:
            found.append(call.write("a / b", **ratio))
    return found


def picture(call: Call):
    return call.args["input" if "input" in call.args else "self"]


@writes("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def nearest(call: Call):
    """Each place as often as a whole factor says, else the place at or before the sample."""
    before, after = sizes(call)
    whole = [symbolic(b) / symbolic(a) for a, b in zip(before, after)]
    factors(call)
    if not all(
        getattr(f, "is_Integer", f == int(f) if isinstance(f, float) else False) for f in whole
    ):
        return gathered(call, "jnp.floor(jnp.arange(size) * step).astype(int)")
    found = picture(call)
    for axis, factor in enumerate(map(int, whole), 1):
        if factor != 1:
            text = "jnp.repeat(x, factor, axis=axis)"
            found = call.write(text, x=found, factor=factor, axis=axis)
    return found


@writes(*(f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)))
def nearest_exact(call: Call):
    return gathered(call, "jnp.floor((jnp.arange(size) + 0.5) * step).astype(int)")


def gathered(call: Call, places: str):
    """The nearest place along each dimension, as torch counts it."""
    found = picture(call)
    for axis, (size, step) in enumerate(zip(sizes(call)[1], steps(call)), 1):
        if step != 1.0:
            at = call.write(places, size=call.size(size), step=step)
            text = "jnp.take(x, at, axis=axis, mode='clip')"
            found = call.write(text, x=found, at=at, axis=axis)
    return found


@writes("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
def smooth(call: Call):
    """JAX's cubic kernel is another one than torch's."""
    cubic = "cubic" in str(call.node.target)
    given, corners = zip(factors(call), *sizes(call)), call.align_corners
    plain = all(f is None or symbolic(a) * f == symbolic(b) for f, a, b in given)
    if plain and not cubic and not corners:
        return resized(call, "linear", "False")
    more = ", cubic=True" * cubic + ", corners=True" * bool(corners)
    shape = [call.size(n) for n in sizes(call)[1]]
    return call.write(
        f"interpolated(x, shape, steps{more})",
        x=picture(call),
        shape=shape,
        steps=steps(call, corners),
    )


@writes("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def smoothed(call: Call):
    """The kernel as wide as the step, JAX's way and that of the Python Imaging Library."""
    given = zip(factors(call), *sizes(call))
    if call.align_corners or any(
        f is not None and symbolic(a) * f != symbolic(b) for f, a, b in given
    ):
        raise NotImplementedError("antialiasing with aligned corners, or a factor that is cut off")
    return resized(call, "cubic" if "cubic" in str(call.node.target) else "linear", "True")


def resized(call: Call, method: str, antialias: str):
    shape = [call.size(n) for n in (call.out.shape[0], *call.out.shape[2:], call.out.shape[1])]
    text = f"jax.image.resize(x, shape, '{method}', antialias={antialias})"
    return call.write(text, x=picture(call), shape=shape)


@writes("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sample(call: Call):
    mode = ("bilinear", "nearest", "bicubic")[call.interpolation_mode]
    if call.out.ndim != 4 or call.padding_mode == 2:
        raise NotImplementedError("grid_sample in three dimensions, or with reflections")
    more = f", mode='{mode}'" * (mode != "bilinear")
    more += ", border=True" * (call.padding_mode == 1) + ", corners=True" * bool(call.align_corners)
    return call.write(f"sampled(input, grid{more})")
