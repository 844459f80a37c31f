"""Checkpoints: their files, the class and the config that they name, the weights."""
