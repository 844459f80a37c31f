"""Copies of iterators give the same, and leave what they are of where it is."""

import itertools

import pytest

from anyjax.torch.objects.iterators import copied, is_iterator, place

ITEMS = [object() for _ in range(6)]
ITERATORS = {
    "list": lambda: iter(ITEMS),
    "tuple": lambda: iter((*ITEMS,)),
    "range": lambda: iter(range(9)),
    "dict": lambda: iter({1: 2, 3: 4, 5: 6}),
    "items": lambda: iter({"a": 2, "b": 4}.items()),
    "set": lambda: iter({1, 2, 3}),
    "reversed": lambda: reversed(ITEMS),
    "text": lambda: iter("abc"),
    "enumerate": lambda: enumerate(ITEMS),
    "zip": lambda: zip(ITEMS, range(9)),
    "map": lambda: map(id, ITEMS),
    "filter": lambda: filter(None, ITEMS),
    "count": lambda: itertools.count(3, 2),
    "cycle": lambda: itertools.cycle(ITEMS),
    "chain": lambda: itertools.chain(ITEMS, range(3)),
    "islice": lambda: itertools.islice(ITEMS, 1, 5),
    "accumulate": lambda: itertools.accumulate(range(1, 9)),
    "product": lambda: itertools.product(ITEMS, ITEMS),
    "repeat": lambda: itertools.repeat(1, 9),
}


@pytest.mark.parametrize("kind", ITERATORS)
@pytest.mark.parametrize("steps", [0, 1])
def test_copies(kind, steps):
    iterator = ITERATORS[kind]()
    for _ in range(steps):
        next(iterator)
    before = place(iterator)
    assert is_iterator(iterator)
    ahead, beside = copied(iterator), copied(iterator)
    assert place(beside) == before
    first = next(ahead)
    assert place(iterator) == before != place(ahead)
    assert next(iterator) == first == next(beside)


def test_no_copies_of_generators():
    assert not any(map(is_iterator, [(x for x in ITEMS), ITEMS, range(3), None]))
