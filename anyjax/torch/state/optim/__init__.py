"""torch's optimizers and schedules as state of a function."""
