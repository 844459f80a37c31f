"""Pictures made larger or smaller."""

from anyjax.flax.codegen.python.sizes import symbolic
from anyjax.flax.codegen.python.templates import Call, writes


def factors(call: Call) -> list[float | None]:
    """Returns the ratios of sizes that the call gives, by dimension; None where it gives sizes."""
    rank = call.out.ndim - 2
    scale_factors = call.args.get("scale_factors")
    if scale_factors is None:
        names = ("scales_d", "scales_h", "scales_w")[-rank:] if rank > 1 else ("scales",)
        scale_factors = [call.args.get(name) for name in names]
    return list(scale_factors)


def sizes(call: Call) -> tuple[list, list]:
    """Returns the sizes before and after, of the dimensions of the picture."""
    name = "input" if "input" in call.args else "self"
    return list(call.fake(name).shape[2:]), list(call.out.shape[2:])


def steps(call: Call, corners: bool = False) -> list:
    """Returns the distance of the samples in places of the input, by dimension."""
    distances = []
    for factor, source, target in zip(factors(call), *sizes(call)):
        ratio = {"a": call.size(source), "b": call.size(target)}
        if corners:
            distances.append(call.write("(a - 1) / max(b - 1, 1)", **ratio))
        elif symbolic(source) == symbolic(target):
            distances.append(1.0)
        elif factor is not None and symbolic(source) * factor != symbolic(target):
            distances.append(1 / factor)
        else:
            distances.append(call.write("a / b", **ratio))
    return distances


def picture(call: Call):
    return call.args["input" if "input" in call.args else "self"]


@writes("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def nearest(call: Call):
    """Repeats each place by a whole factor, else takes the place at or before the sample."""
    ratios = [symbolic(b) / symbolic(a) for a, b in zip(*sizes(call))]
    factors(call)
    is_whole = lambda f: f.is_integer() if isinstance(f, float) else getattr(f, "is_Integer", False)
    if not all(map(is_whole, ratios)):
        return gathered(call, "jnp.floor(jnp.arange(size) * step).astype(int)")
    output = picture(call)
    for axis, factor in enumerate(map(int, ratios), 1):
        if factor != 1:
            text = "jnp.repeat(x, factor, axis=axis)"
            output = call.write(text, x=output, factor=factor, axis=axis)
    return output


@writes(*(f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)))
def nearest_exact(call: Call):
    return gathered(call, "jnp.floor((jnp.arange(size) + 0.5) * step).astype(int)")


def gathered(call: Call, places: str):
    """Returns the nearest place along each dimension, as torch counts it."""
    output = picture(call)
    for axis, (size, step) in enumerate(zip(sizes(call)[1], steps(call)), 1):
        if step != 1.0:
            at = call.write(places, size=call.size(size), step=step)
            text = "jnp.take(x, at, axis=axis, mode='clip')"
            output = call.write(text, x=output, at=at, axis=axis)
    return output


@writes("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
def smooth(call: Call):
    """Writes a smooth resize; cubic by a snippet, since JAX's cubic kernel is another one."""
    cubic = "cubic" in call.name
    scales, corners = zip(factors(call), *sizes(call)), call.align_corners
    by_ratio = all(f is None or symbolic(a) * f == symbolic(b) for f, a, b in scales)
    if by_ratio and not cubic and not corners:
        return resized(call, "linear", "False")
    options = ", cubic=True" * cubic + ", corners=True" * bool(corners)
    shape = [call.size(n) for n in sizes(call)[1]]
    text = f"interpolated(x, shape, steps{options})"
    return call.write(text, x=picture(call), shape=shape, steps=steps(call, corners))


@writes("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def smoothed(call: Call):
    """Writes an antialiased resize: the kernel is as wide as the step, as in JAX and Pillow."""
    scales = zip(factors(call), *sizes(call))
    if call.align_corners or any(
        f is not None and symbolic(a) * f != symbolic(b) for f, a, b in scales
    ):
        raise NotImplementedError("antialiasing with aligned corners, or a factor that is cut off")
    return resized(call, "cubic" if "cubic" in call.name else "linear", "True")


def resized(call: Call, method: str, antialias: str):
    shape = [call.size(n) for n in (call.out.shape[0], *call.out.shape[2:], call.out.shape[1])]
    text = f"jax.image.resize(x, shape, '{method}', antialias={antialias})"
    return call.write(text, x=picture(call), shape=shape)


@writes("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sample(call: Call):
    mode = ("bilinear", "nearest", "bicubic")[call.interpolation_mode]
    if call.out.ndim != 4 or call.padding_mode == 2:
        raise NotImplementedError("grid_sample in three dimensions, or with reflections")
    options = f", mode='{mode}'" * (mode != "bilinear")
    options += ", border=True" * (call.padding_mode == 1)
    options += ", corners=True" * bool(call.align_corners)
    return call.write(f"sampled(input, grid{options})")
