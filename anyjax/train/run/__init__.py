"""A run of training: ``fit``, evaluation, checkpoints, logs, the origin of a NaN."""
