"""The parts of ``tojax.flax.load_into``: names, layouts, and agreement of numbers."""
