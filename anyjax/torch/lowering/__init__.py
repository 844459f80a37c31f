"""How a call of an operator is lowered: by its row, by other operators, or as a gradient."""
