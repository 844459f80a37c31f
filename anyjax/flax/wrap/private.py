"""Private names of torch and transformers that fresh weights need; each is optional.

No framework is imported here: names alone.
"""

from __future__ import annotations

# The methods that initialise a module of torch; the second in MultiheadAttention and Transformer.
RESET = ("reset_parameters", "_reset_parameters")
# Set by transformers on modules with loaded weights, which it then does not initialise.
LOADED = "_is_hf_initialized"
