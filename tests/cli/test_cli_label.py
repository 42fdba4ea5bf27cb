"""`kleash label`: its functions on a SQLite store, and its arguments."""

import argparse
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kleash.cli import label
from kleash.cli.label_arguments import add_label
from kleash.errors import DataError, KleashError
from kleash.labels.records import Pair
from kleash.labels.store import LabelStore


@pytest.fixture
def store(tmp_path):
    """Four pairs; ann answered three of them, bob two and skipped one."""
    path = str(tmp_path / "team.db")
    with LabelStore.open(path) as labels:
        labels.add(Pair(f"prompt {n}", "a", "b", "run") for n in range(4))
        for number, choice in ((1, "first"), (2, "second"), (3, "tie")):
            labels.vote("ann", number, choice)
        for number, choice in ((1, "first"), (2, "first"), (3, "skip")):
            labels.vote("bob", number, choice)
    return path


def rows(text):
    return dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in text.splitlines())


def parsed(*words):
    parser = argparse.ArgumentParser()
    add_label(parser.add_subparsers(required=True))
    return vars(parser.parse_args(["label", *words]))


def test_status_counts_and_says_how_far_annotators_agree(store, capsys):
    """Two shared pairs, ff and sf: p_o = .5, p_e = .5."""
    label.status(store)
    found = rows(capsys.readouterr().out)
    expected = "Cohen's kappa 0 [0, 0] on 2 pairs with several answers; 50\u202f% of answers agree"
    assert found.pop("agreement") == expected
    assert found == {
        "store": store,
        "pairs": "4",
        "answered": "3",
        "skipped": "1",
        "flagged": "0",
        "without a vote": "1",
        "answers by ann": "3",
        "answers by bob": "2",
    }


def test_status_of_a_new_store(tmp_path, capsys):
    path = str(tmp_path / "labels.db")
    LabelStore.open(path).close()
    label.status(path)
    found = rows(capsys.readouterr().out)
    assert found["agreement"] == "– (no pair has the answers of two annotators)"
    assert found["pairs"] == "0"


def test_status_where_all_answers_are_the_same(tmp_path, capsys):
    path = str(tmp_path / "labels.db")
    with LabelStore.open(path) as labels:
        labels.add([Pair("p", "a", "b")])
        labels.vote("ann", 1, "first")
        labels.vote("bob", 1, "first")
    label.status(path)
    expected = "Cohen's kappa is undefined on 1 pair with several answers: all answers are the same"
    assert rows(capsys.readouterr().out)["agreement"] == expected


@pytest.mark.parametrize("command", [label.status, lambda store: label.export(Path("out.jsonl"), store)])
def test_a_command_that_reads_makes_no_store(tmp_path, command):
    path = tmp_path / "missing.db"
    with pytest.raises(KleashError, match=r"There is no label store '.*missing\.db'. Name it with --store"):
        command(str(path))
    assert not path.exists()


def test_export_and_import(store, tmp_path, capsys):
    out, other = tmp_path / "comparisons.jsonl", str(tmp_path / "other.db")
    label.export(out, store)
    label.import_(out, other)
    label.import_(out, other)
    assert capsys.readouterr().out.splitlines() == [
        f"{out}: 3 pairs and 5 votes",
        f"{other}: 3 pairs and 5 votes added",
        f"{other}: 0 pairs and 5 votes added",
    ]
    with LabelStore.open(other) as labels:
        assert labels.progress().by_annotator == {"ann": 3, "bob": 2}


@pytest.mark.parametrize("format", ["argilla", "label-studio"])
def test_export_and_import_for_other_tools(store, tmp_path, capsys, format):
    out, other = tmp_path / "labels.json", str(tmp_path / "other.db")
    label.export(out, store, format)
    label.import_(out, other, format)
    with LabelStore.open(other) as labels:
        assert labels.progress().by_annotator == {"ann": 3, "bob": 2}
        assert labels.progress().total == 4


def test_comparisons_have_one_of_two_extensions(store, tmp_path):
    with pytest.raises(DataError, match=r"has the extension '\.csv': comparisons are written as \.jsonl or \.parquet"):
        label.export(tmp_path / "comparisons.csv", store)


def test_serve_opens_the_page_where_it_is_told(monkeypatch):
    called = []
    page = ModuleType("kleash.web.label_page")
    page.serve = lambda location, **where: called.append((location, where))
    monkeypatch.setitem(sys.modules, "kleash.web.label_page", page)
    label.serve()
    label.serve("team.db", "0.0.0.0", 80, "secret")
    assert called == [
        ("labels.db", {"host": "127.0.0.1", "port": 8765, "token": None}),
        ("team.db", {"host": "0.0.0.0", "port": 80, "token": "secret"}),
    ]


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "kleash.web.label_page", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(
        KleashError, match=r"Labelling needs fastapi, which is not installed: pip install 'kleash\[label\]'"
    ):
        label.serve()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["serve"], {"call": "label:serve", "store": "labels.db", "host": "127.0.0.1", "port": 8765, "token": None}),
        (["status", "--store", "a.db"], {"call": "label:status", "store": "a.db"}),
        (
            ["export", "c.jsonl"],
            {"call": "label:export", "out": Path("c.jsonl"), "store": "labels.db", "format": "comparisons"},
        ),
        (
            ["import", "a.json", "--format", "argilla"],
            {"call": "label:import_", "path": Path("a.json"), "store": "labels.db", "format": "argilla"},
        ),
    ],
)
def test_arguments_are_those_of_the_functions(words, expected):
    found = parsed(*words)
    assert found == expected
    _, name = found.pop("call").split(":")
    assert found.keys() <= set(getattr(label, name).__code__.co_varnames)
