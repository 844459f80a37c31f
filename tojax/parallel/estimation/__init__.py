"""What a program needs on chips that are not here: memory, arithmetic, communication, time."""
