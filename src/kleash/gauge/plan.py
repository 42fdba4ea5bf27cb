"""What is asked of a measurement, checked, and what both models of a pair will read: no weights yet."""

from __future__ import annotations

from dataclasses import dataclass

from kleash.data.render import RenderedPrompt
from kleash.errors import ConfigError
from kleash.gauge import builtin
from kleash.gauge.builtin import Texts
from kleash.gauge.scoring import BatchSize
from kleash.gauge.sources import Source, rows_of, tokenizer_of
from kleash.gauge.vocabulary import check_tokenizers, shared
from kleash.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class Settings:
    """What a measurement was asked to do, checked."""

    samples: int
    max_length: int
    temperature: float
    limit: int | None
    seed: int
    dtype: str
    batch_size: BatchSize
    scale: bool

    def __post_init__(self) -> None:
        for name in ("samples", "max_length", "limit", "batch_size"):
            value = getattr(self, name)
            if value not in (None, "auto") and value < 1:
                raise ConfigError(f"{name} = {value} leaves nothing to measure. Give 1 or more")
        if not self.temperature > 0:
            raise ConfigError(
                f"temperature = {self.temperature}: greedy replies have no distribution to compare. Give more than 0"
            )
        if self.seed < 0:
            raise ConfigError(f"seed = {self.seed} is negative. Give 0 or more")
        if self.dtype not in ("auto", "float32", "bfloat16"):
            raise ConfigError(f"dtype = {self.dtype!r} is not known. Give float32, bfloat16 or auto")


@dataclass(frozen=True)
class Asked:
    """Where prompts and texts come from."""

    prompts: Texts | None
    column: str | None
    corpus: Texts | None
    corpus_column: str | None


@dataclass(frozen=True)
class Plan:
    """What both models of a pair will read, before any weight is."""

    reference: Tokenizer
    tokenizer: Tokenizer
    """What both share."""
    prompts: list[RenderedPrompt]
    texts: list[list[list[int]]]
    notes: tuple[str, ...]

    def longest(self, max_length: int) -> int:
        """Tokens of the longest sequence."""
        asked = [len(prompt.token_ids) + max_length for prompt in self.prompts]
        given = [len(piece) for text in self.texts for piece in text]
        return max([*asked, *given])


def plan(base: Source, source: Source, asked: Asked, settings: Settings) -> Plan:
    """Compare the tokenizers of a pair, and render prompts and texts once for both.

    Raises:
        DataError: prompts or texts that cannot be used, or that are longer than the context.
        ModelError: another tokenizer, or no chat template where a prompt needs one.
    """
    ours = tokenizer_of(base)
    theirs = ours if source.key == base.key else tokenizer_of(source)
    check_tokenizers(ours, rows_of(base), theirs, rows_of(source))
    both = shared(ours, theirs)
    prompts: list[RenderedPrompt] = []
    texts: list[list[list[int]]] = []
    notes = []
    if asked.corpus is not None:
        texts = builtin.texts(asked.corpus, both, column=asked.corpus_column, limit=settings.limit)
    if asked.prompts is not None or asked.corpus is None:
        chosen = builtin.prompts(asked.prompts, column=asked.column, limit=settings.limit)
        prompts, how = builtin.rendered(chosen, both, built_in=asked.prompts is None, max_length=settings.max_length)
        notes.append(how)
    notes += [it.described for it in (base, source) if it.kind == "gguf"]
    return Plan(ours, both, prompts, texts, tuple(notes))
