"""`kleash label serve`, `status`, `export` and `import`: a label store from the command line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from kleash.cli.label_arguments import DEFAULT_HOST, DEFAULT_PORT, DEFAULT_STORE
from kleash.cli.screen import screen
from kleash.errors import KleashError
from kleash.report.wording import number, percent, with_interval

if TYPE_CHECKING:
    from kleash.labels.exchange import Exchanged, ExchangeFormat
    from kleash.labels.records import Agreement
    from kleash.labels.store import LabelStore


def serve(
    store: str = DEFAULT_STORE, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT, token: str | None = None
) -> None:
    """Serve the page on which people compare, until Ctrl-C.

    Args:
        store: an SQLite file, made if absent, or a database's URL.
        host: where to listen; an address that other machines reach needs a token.
        port: where to listen.
        token: what a browser must bring; ``auto`` makes one.

    Raises:
        KleashError: the extra is not installed, or the store or the address cannot be used.
    """
    with _extra_installed():
        from kleash.web.label_page import serve as serve_page
    serve_page(store, host=host, port=port, token=token)


def status(store: str = DEFAULT_STORE) -> None:
    """Print how many pairs are labelled, by whom, and how far the annotators agree.

    Raises:
        KleashError: there is no such store, or it cannot be used.
    """
    with _opened(store) as labels:
        progress, agreement = labels.progress(), labels.agreement()
    head = Table.grid(padding=(0, 2))
    head.add_row("store", labels.name)
    head.add_row("pairs", number(progress.total))
    head.add_row("answered", number(progress.done))
    head.add_row("skipped", number(progress.skipped))
    head.add_row("flagged", number(progress.flagged))
    head.add_row("without a vote", number(progress.remaining))
    for annotator, answers in progress.by_annotator.items():
        head.add_row(f"answers by {annotator}", number(answers))
    head.add_row("agreement", _agreement(agreement))
    screen().print(head)


def export(out: Path, store: str = DEFAULT_STORE, format: ExchangeFormat = "comparisons") -> None:
    """Write the votes as comparisons to train on, or pairs and votes for another labelling tool.

    Args:
        out: the file: .jsonl or .parquet for comparisons, else JSON.
        store: an SQLite file or a database's URL.
        format: comparisons, argilla or label-studio.

    Raises:
        KleashError: there is no such store, it has nothing to write, or the file cannot be written.
    """
    with _opened(store) as labels:
        from kleash.labels.exchange import write_labels

        written = write_labels(labels, out, format)
    print(f"{out}: {_counts(written)}")


def import_(path: Path, store: str = DEFAULT_STORE, format: ExchangeFormat = "comparisons") -> None:
    """Add the pairs and votes of a file to a store, which is made if absent.

    Args:
        path: comparisons, or the JSON of another labelling tool.
        store: an SQLite file or a database's URL.
        format: comparisons, argilla or label-studio.

    Raises:
        KleashError: the file cannot be read, or the store cannot be used.
    """
    with _extra_installed():
        from kleash.labels.exchange import read_labels
        from kleash.labels.store import LabelStore
    with LabelStore.open(store) as labels:
        read, name = read_labels(labels, path, format), labels.name
    print(f"{name}: {_counts(read)} added")
    for reason, count in read.filtered.items():
        print(f"left out: {count}, because {reason}")


def _counts(exchanged: Exchanged) -> str:
    return (
        f"{exchanged.pairs} pair{'s' * (exchanged.pairs != 1)} and {exchanged.votes} vote{'s' * (exchanged.votes != 1)}"
    )


def _agreement(agreement: Agreement) -> str:
    if agreement.pairs == 0:
        return f"{number(None)} (no pair has the answers of two annotators)"
    raw = "" if agreement.raw is None else f"; {percent(agreement.raw)} of answers agree"
    pairs = f"on {agreement.pairs} pair{'s' * (agreement.pairs != 1)} with several answers"
    if agreement.kappa is None:
        return f"{agreement.statistic} is undefined {pairs}: all answers are the same"
    low = math.nan if agreement.low is None else agreement.low
    high = math.nan if agreement.high is None else agreement.high
    return f"{agreement.statistic} {with_interval(agreement.kappa, low, high)} {pairs}{raw}"


@contextmanager
def _opened(store: str) -> Iterator[LabelStore]:
    """Open a store that is there already: a command that reads makes none."""
    if "://" not in store and not Path(store).is_file():
        raise KleashError(
            f"There is no label store '{store}'. Name it with --store, or make one: `kleash label import FILE` adds"
            " pairs."
        )
    with _extra_installed():
        from kleash.labels.store import LabelStore
    with LabelStore.open(store) as labels:
        yield labels


@contextmanager
def _extra_installed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise KleashError(
            f"Labelling needs {error.name}, which is not installed: pip install 'kleash[label]'."
        ) from error
