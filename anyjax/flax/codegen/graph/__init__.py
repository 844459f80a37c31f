"""The module's graph: exported, flattened, freed of what only torch needs."""
