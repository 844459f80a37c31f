import pytest

from tests.expectations import (
    FOLDER,
    BadExpectations,
    complaints,
    expected_failures,
    of_versions,
    params,
)


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "list.txt").write_text(text)
        return tmp_path / "list.txt"

    return write


def test_a_comment_is_the_reason_of_the_names_below_it(written):
    text = "# no kernel,\n# on any backend\na\nb\n# another\nc\n\n#\n# last\nd\n"
    assert expected_failures(written(text)) == {
        "a": "no kernel, on any backend",
        "b": "no kernel, on any backend",
        "c": "another",
        "d": "last",
    }


@pytest.mark.parametrize("text", ["a\n", "# why\na\n\nb\n", "#\na\n", "# far above\n\na\n"])
def test_a_name_without_a_reason_is_refused(written, text):
    with pytest.raises(BadExpectations, match="no reason"):
        expected_failures(written(text))


def test_a_name_that_stands_twice_is_refused(written):
    with pytest.raises(BadExpectations, match="twice"):
        expected_failures(written("# why\na\n# again\na\n"))


def test_a_missing_list_is_a_mistake():
    with pytest.raises(FileNotFoundError):
        expected_failures("no-such-list.txt")


def test_params_mark_what_must_fail(written):
    good, bad = params(["good", "bad"], written("# why\nbad\n"))
    assert (good.id, list(good.marks)) == ("good", [])
    (mark,) = bad.marks
    assert (mark.name, mark.kwargs) == ("xfail", {"reason": "why", "strict": True})


def test_params_refuse_names_that_no_test_has(written):
    file = written("# why\ngone\n")
    with pytest.raises(BadExpectations, match="gone"):
        params(["good"], file)
    assert len(params(["good"], file, known=["gone"])) == 1


def test_complaints_name_new_failures_and_unexpected_passes():
    assert complaints({"a": "broken", "b": "known"}, {"b": "why", "c": "why"}) == [
        "a: broken",
        "c: expected to fail and does not",
    ]
    assert complaints({"b": "known"}, {"b": "why"}) == []


def test_failures_of_versions_are_those_that_are_installed(written):
    lines = ["python>=3.11 a.py::a", "python<3.11 b.py::b", "pytest>=8.4 c.py::c[x y]"]
    lines += ["pytest>=1000 d.py::d", "no-such-package>=1 e.py::e"]
    file = written("\n".join(["# why", *lines, ""]))
    assert of_versions(file) == {"a.py::a": "why", "c.py::c[x y]": "why"}


def test_failures_of_versions_are_of_tests_that_exist():
    ids = (line.split(" ", 1)[1] for line in expected_failures("versions.txt"))
    for test in ids:
        path, name = test.partition("[")[0].split("::")
        assert f"def {name}(" in (FOLDER.parent.parent / path).read_text(encoding="utf-8"), test


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.name)
def test_every_list_keeps_the_format(path):
    expected_failures(path)
