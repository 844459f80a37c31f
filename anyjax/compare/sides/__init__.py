"""The sides of a comparison: models that run."""
