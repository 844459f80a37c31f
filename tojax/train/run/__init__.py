"""A run of training: ``fit``, evaluation, checkpoints, logs, and what went wrong."""
