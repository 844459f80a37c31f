"""The parts of ``anyjax.flax.load_into``: names, layouts, and agreement of numbers."""
