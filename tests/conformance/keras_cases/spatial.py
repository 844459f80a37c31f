"""Convolutions and pooling."""

from __future__ import annotations

from keras import layers as L

from tests.conformance.keras_cases.arguments import case

SIZES = {1: (7,), 2: (7, 6), 3: (5, 6, 5)}


def x(dims, channels=4):
    return (2, *SIZES[dims], channels)


CONV = {}
for d in (1, 2, 3):
    conv, back = getattr(L, f"Conv{d}D"), getattr(L, f"Conv{d}DTranspose")
    CONV |= {
        f"Conv{d}D": case(lambda c=conv: c(3, 3, activation="tanh"), x(d)),
        f"Conv{d}D.same": case(lambda c=conv: c(3, 3, strides=2, padding="same"), x(d)),
        f"Conv{d}D.dilated": case(lambda c=conv: c(3, 2, dilation_rate=2), x(d)),
        f"Conv{d}D.groups": case(lambda c=conv: c(4, 2, groups=2), x(d), compiled=True),
        f"Conv{d}DTranspose": case(lambda c=back: c(3, 3, strides=2), x(d)),
        f"Conv{d}DTranspose.same": case(
            lambda c=back: c(3, 3, strides=2, padding="same", output_padding=1), x(d)
        ),
    }
CONV["Conv1D.causal"] = case(lambda: L.Conv1D(3, 3, padding="causal", dilation_rate=2), x(1))
CONV["Conv2D.channels_first"] = case(
    lambda: L.Conv2D(3, 3, data_format="channels_first"), (2, 4, 7, 6), compiled=True
)
CONV["Conv2DTranspose.dilated"] = case(lambda: L.Conv2DTranspose(3, 3, dilation_rate=2), x(2))
for d in (1, 2):
    for kind in ("Depthwise", "Separable"):
        layer = getattr(L, f"{kind}Conv{d}D")
        first = () if kind == "Depthwise" else (5,)
        CONV |= {
            f"{kind}Conv{d}D": case(
                lambda c=layer, f=first: c(*f, 3, depth_multiplier=2), x(d), compiled=True
            ),
            f"{kind}Conv{d}D.same": case(
                lambda c=layer, f=first: c(*f, 3, padding="same", strides=2), x(d)
            ),
            f"{kind}Conv{d}D.dilated": case(
                lambda c=layer, f=first: c(*f, 2, dilation_rate=2), x(d)
            ),
        }

POOLING = {}
for d in (1, 2, 3):
    for kind in ("Average", "Max"):
        pool = getattr(L, f"{kind}Pooling{d}D")
        whole = getattr(L, f"Global{kind}Pooling{d}D")
        to = getattr(L, f"Adaptive{kind}Pooling{d}D")
        POOLING |= {
            f"{kind}Pooling{d}D": case(lambda c=pool: c(2), x(d)),
            f"{kind}Pooling{d}D.same": case(lambda c=pool: c(3, strides=2, padding="same"), x(d)),
            f"Global{kind}Pooling{d}D": case(lambda c=whole: c(), x(d)),
            f"Global{kind}Pooling{d}D.keepdims": case(lambda c=whole: c(keepdims=True), x(d)),
            f"Adaptive{kind}Pooling{d}D": case(lambda c=to: c(3), x(d)),
        }
POOLING["MaxPooling2D.channels_first"] = case(
    lambda: L.MaxPooling2D(2, data_format="channels_first"), (2, 4, 7, 6), compiled=True
)

CASES = CONV | POOLING
