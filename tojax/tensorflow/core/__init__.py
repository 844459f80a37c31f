"""What every part of the frontend builds on: schemas, dtypes, attributes, known values."""
