"""Handlers of operators register themselves under each of their names."""

from anyjax.tensorflow.core.running import HANDLERS, handles


def test_one_handler_of_two_operators(monkeypatch):
    monkeypatch.setattr("anyjax.tensorflow.core.running.HANDLERS", handlers := {})

    @handles("First", "Second")
    def handler(run, node, inputs):
        return inputs

    assert handlers == {"First": handler, "Second": handler}
    assert not {"First", "Second"} & set(HANDLERS)
