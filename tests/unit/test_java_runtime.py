"""Which archive of classes Java is told to use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import java_runtime
from penstock.errors import SettingError
from penstock.java_runtime import archive_name, archive_options, find_archive, java_options, remove_unusable


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java and a set of jars of the test's own."""
    home, jars = tmp_path / "java", tmp_path / "jars"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("")
    jars.mkdir()
    (jars / "spark.jar").write_bytes(b"classes")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setattr(java_runtime, "spark_jars", lambda: jars)
    return jars


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "archives"
    place.mkdir()
    return place


def make(folder: Path, size: int = 5) -> Path:
    path = folder / archive_name(size)
    path.write_bytes(b"x" * size)
    return path


@pytest.mark.usefixtures("jars")
def test_an_archive_is_found_and_used(folder: Path) -> None:
    assert find_archive(folder) is None
    assert archive_options(folder) == []
    made = make(folder)
    assert find_archive(folder) == made
    assert f"-XX:SharedArchiveFile={made}" in archive_options(folder)


@pytest.mark.usefixtures("jars")
def test_there_need_be_no_folder(tmp_path: Path) -> None:
    assert archive_options(tmp_path / "nowhere") == []


@pytest.mark.usefixtures("jars")
def test_one_that_is_not_whole_is_none(folder: Path) -> None:
    make(folder).write_bytes(b"xx")
    assert archive_options(folder) == []


def test_other_jars_need_another_archive(folder: Path, jars: Path) -> None:
    made = make(folder)
    java_runtime._fingerprint.cache_clear()
    os.utime(jars / "spark.jar", (1, 1))
    assert find_archive(folder) is None
    right = make(folder)
    remove_unusable(folder)
    assert list(folder.iterdir()) == [right] != [made]


@pytest.mark.usefixtures("jars")
def test_another_java_needs_another_archive(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(folder)
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    (other / "bin" / "java").write_text("")
    monkeypatch.setenv("JAVA_HOME", str(other))
    assert find_archive(folder) is None
    assert made.exists(), "looking removes nothing"


@pytest.mark.usefixtures("jars")
def test_of_two_that_were_made_at_once_both_may_stay(folder: Path) -> None:
    first, second = make(folder, 5), make(folder, 6)
    remove_unusable(folder)
    assert sorted(folder.iterdir()) == [first, second]


def test_options_that_cannot_be_read_are_a_clear_error() -> None:
    with pytest.raises(SettingError, match="PENSTOCK_JAVA_OPTIONS"):
        java_options({"PENSTOCK_JAVA_OPTIONS": "-Dname='no end"})
