"""The text of a file is formatted wherever it is written."""

from anyjax.flax.codegen.python.file_text import formatted


def test_a_module_in_the_working_folder_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "types.py").write_text("raise ImportError")
    monkeypatch.chdir(tmp_path)
    assert formatted("x=1") == "x = 1\n"
