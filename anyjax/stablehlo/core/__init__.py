"""The base of the frontend: schemas, types, attributes, regions, known values."""
