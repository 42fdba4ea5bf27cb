from types import SimpleNamespace

import pytest

from kleash.report import catalogue


@pytest.fixture(autouse=True)
def metrics(monkeypatch):
    known = SimpleNamespace(key="kl/x", title="KL", unit="nats per token", meaning="High: far.")
    monkeypatch.setattr(catalogue, "METRICS", {"kl/x": known})


def test_a_known_metric_is_named_by_the_catalogue():
    assert catalogue.title("kl/x") == "KL"
    assert catalogue.unit("kl/x") == "nats per token"
    assert catalogue.meaning("kl/x") == "High: far."


def test_the_held_out_one_says_so():
    assert catalogue.title("eval/kl/x") == "KL, held out"
    assert catalogue.unit("eval/kl/x") == "nats per token"


def test_an_unknown_metric_stands_for_itself():
    assert (catalogue.title("eval/mine"), catalogue.unit("mine"), catalogue.meaning("mine")) == (
        "eval/mine",
        "",
        "",
    )
