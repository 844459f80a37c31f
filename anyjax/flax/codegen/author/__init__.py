"""The author's torch code: names, statements and constructors."""
