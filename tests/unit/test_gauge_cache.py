"""The cache: what comes back, and that it never stands in the way."""

import numpy as np

from kleash.gauge.cache import Cache, standard

ARRAYS = {"a": np.arange(3), "b": np.array([True, False])}


def same(found, expected):
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)


def test_what_was_put_comes_back_under_the_same_key_only(tmp_path):
    Cache(tmp_path / "new").put(ARRAYS, model="x", numbers=[1, 2])
    fresh = Cache(tmp_path / "new")
    assert same(fresh.get(numbers=[1, 2], model="x"), ARRAYS)
    assert fresh.get(model="x", numbers=[2, 1]) is None
    assert [file.suffix for file in (tmp_path / "new").iterdir()] == [".npz"]


def test_without_a_folder_entries_last_as_long_as_the_object():
    cache = Cache(None)
    cache.put(ARRAYS, key=1)
    assert same(cache.get(key=1), ARRAYS)
    assert Cache(None).get(key=1) is None


def test_a_damaged_entry_counts_as_none(tmp_path):
    Cache(tmp_path).put(ARRAYS, key=1)
    (file,) = tmp_path.iterdir()
    for content in (b"", b"nonsense", file.read_bytes()[:60]):
        file.write_bytes(content)
        assert Cache(tmp_path).get(key=1) is None


def test_a_folder_that_cannot_be_written_ends_the_caching_and_nothing_else(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "folder")
    cache.put(ARRAYS, key=1)
    assert same(cache.get(key=1), ARRAYS)


def test_the_standard_cache_lies_in_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KLEASH_CACHE", str(tmp_path))
    standard().put(ARRAYS, key=1)
    assert len(list((tmp_path / "gauge").iterdir())) == 1
