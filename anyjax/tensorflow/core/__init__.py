"""The base of the frontend: schemas, dtypes, attributes, nodes, options, private names."""
