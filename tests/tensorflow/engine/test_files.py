"""Files are looked at before TensorFlow or Keras reads them."""

import json
import os
import zipfile

import pytest

from anyjax.errors import BadCheckpoint
from anyjax.files import SMALL
from anyjax.tensorflow.engine.files import check_archive, check_regular


def archive(file, config, **entries):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("config.json", json.dumps(config))
        for name, content in entries.items():
            opened.writestr(name, content)
    return file


def test_archives_that_unpack_to_far_more(tmp_path):
    check_archive(archive(tmp_path / "a.keras", {}, weights=bytes(SMALL)))
    check_archive(archive(tmp_path / "b.keras", {}, weights=os.urandom(2**20)))
    with pytest.raises(BadCheckpoint, match="packed into"):
        check_archive(archive(tmp_path / "c.keras", {}, weights=bytes(SMALL + 1)))


def test_layers_that_are_larger_than_the_file(tmp_path):
    layers = {"config": {"layers": [{"config": {"units": 3}}, {"config": {"units": 10**9}}]}}
    with pytest.raises(BadCheckpoint, match="fewer than units = 1000000000"):
        check_archive(archive(tmp_path / "a.keras", layers))
    layers["config"]["layers"].pop()
    check_archive(archive(tmp_path / "b.keras", layers))


@pytest.mark.parametrize("config", ["{", "[" * 10**5, "9" * 10**5])
def test_configs_that_are_none(tmp_path, config):
    file = tmp_path / "a.keras"
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr("config.json", config)
    with pytest.raises(BadCheckpoint):
        check_archive(file)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
def test_pipes(tmp_path):
    check_regular(tmp_path, tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    for check in (check_regular, check_archive):
        with pytest.raises(BadCheckpoint, match="it is a pipe"):
            check(tmp_path / "pipe")
