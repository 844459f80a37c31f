"""Which thread traces."""

import threading

from anyjax.torch.core import current_trace


def test_only_this_thread_traces():
    found = []
    with current_trace.entered("a trace"):
        assert current_trace.active() and current_trace.trace() == "a trace"
        thread = threading.Thread(target=lambda: found.append(current_trace.active()))
        thread.start()
        thread.join()
        with current_trace.entered("an inner one"):
            assert current_trace.trace() == "an inner one"
        assert current_trace.trace() == "a trace"
    assert found == [False] and not current_trace.active()


def test_the_flag_is_used_as_a_bool_is():
    flag = current_trace.Active()
    assert [bool(flag), flag | False, False | flag, flag & True, flag == False] == [  # noqa: E712
        False, False, False, False, True,
    ]  # fmt: skip
    with current_trace.entered("a trace"):
        assert bool(flag) and flag | False and True & flag and flag == True  # noqa: E712
    asked = False
    asked |= flag
    assert asked is False
