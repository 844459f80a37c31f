"""Which thread traces."""

import threading

from tojax.torch.core import current


def test_only_this_thread_traces():
    found = []
    with current.entered("a trace"):
        assert current.active() and current.trace() == "a trace"
        thread = threading.Thread(target=lambda: found.append(current.active()))
        thread.start()
        thread.join()
        with current.entered("an inner one"):
            assert current.trace() == "an inner one"
        assert current.trace() == "a trace"
    assert found == [False] and not current.active()


def test_the_flag_is_used_as_a_bool_is():
    flag = current.Active()
    assert [bool(flag), flag | False, False | flag, flag & True, flag == False] == [  # noqa: E712
        False, False, False, False, True,
    ]  # fmt: skip
    with current.entered("a trace"):
        assert bool(flag) and flag | False and True & flag and flag == True  # noqa: E712
    asked = False
    asked |= flag
    assert asked is False
