"""What the author of the torch module wrote: names, lines and constructors of the source."""
