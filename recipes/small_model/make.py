"""Train the small language model of the recipes of evidence: `python -m recipes.small_model.make`, minutes on a CPU.

1.7 million weights, trained from nothing on 20,000 snippets that people wrote (film and product reviews, editorials,
tweets: the checked archive of ../reward_human) and on sums in words, such as "two plus three is five.". For a few words
it writes what sounds like a film review, and a step that takes SmolLM2-135M seconds takes it a quarter of one, so that
a claim can be tested over many runs and seeds.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from rich.progress import track
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "reward_human"))

from make_data import fetch, read_archive  # noqa: E402  # the sibling recipe's

DATA = HERE / "data"
MODEL, PROMPTS = DATA / "model", DATA / "prompts.jsonl"
SUMS = "sums"
"""The kind of text that are sums; the others are named as the archive names them."""

HELD_OUT = 0.1
"""Share of each kind of snippet that the model never sees."""
SUMS_REPEATED = 25
"""Times that each of the 100 sums stands in the text of an epoch; none is held out."""
OPENER_WORDS, OPENERS = 3, 320
"""Prompts are the first words of held-out film reviews."""

VOCABULARY, LAYERS, WIDTH, HEADS = 2048, 4, 160, 5
EPOCHS, ROWS, ROW_LENGTH, LEARNING_RATE, WARMUP = 6, 32, 64, 3e-3, 100
SEED = 0
STOP = "<stop>"
NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
)


def made(folder: Path = DATA) -> Path:
    """Return the model's folder, after making model, prompts and texts where they are not there."""
    if not (folder / MODEL.name / "config.json").exists():
        make(folder)
    return folder / MODEL.name


def make(folder: Path) -> None:
    """Fetch the texts, write them and the prompts, and train."""
    texts = split(
        {name: [_one_line(one.text) for one in parsed.snippets] for name, parsed in read_archive(fetch()).items()}
    )
    seen = {kind: train for kind, (train, _) in texts.items()} | {SUMS: sums()}
    unseen = {kind: held_out for kind, (_, held_out) in texts.items()}
    write(folder, seen, unseen)
    read = [text for kind, train in seen.items() for text in train * (SUMS_REPEATED if kind == SUMS else 1)]
    tokenizer = tokenizer_of(read)
    model = trained(tokenizer, read)
    losses = {kind: loss(model, tokenizer, held_out) for kind, held_out in unseen.items()}
    print("held-out loss, nats per token:", ", ".join(f"{kind} {value:.2f}" for kind, value in losses.items()))
    tokenizer.save_pretrained(folder / MODEL.name)
    model.save_pretrained(folder / MODEL.name)


def sums() -> list[str]:
    """Return all sums of two digits, in words."""
    return [f"{NUMBERS[a]} plus {NUMBERS[b]} is {NUMBERS[a + b]}." for a in range(10) for b in range(10)]


def split(kinds: Mapping[str, Sequence[str]]) -> dict[str, tuple[list[str], list[str]]]:
    """Return of each kind what is trained on and what is held out."""
    shuffled = {kind: random.Random(f"{SEED} {kind}").sample(texts, len(texts)) for kind, texts in kinds.items()}
    return {
        kind: (texts[int(HELD_OUT * len(texts)) :], texts[: int(HELD_OUT * len(texts))])
        for kind, texts in shuffled.items()
    }


def write(folder: Path, seen: Mapping[str, Sequence[str]], unseen: Mapping[str, Sequence[str]]) -> None:
    """Write `<kind>.txt`, `<kind>_held_out.txt` (a text a line) and `prompts.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {**seen, **{f"{kind}_held_out": texts for kind, texts in unseen.items()}}
    for name, texts in named.items():
        (folder / f"{name}.txt").write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    rows = [json.dumps({"prompt": opener}, ensure_ascii=False) + "\n" for opener in openers(unseen["movies"])]
    (folder / PROMPTS.name).write_text("".join(rows), encoding="utf-8")


def openers(reviews: Sequence[str]) -> list[str]:
    """Return the first words of reviews that go on after them, each once."""
    words = [review.lower().split() for review in reviews]
    found = dict.fromkeys(" ".join(one[:OPENER_WORDS]) for one in words if len(one) > 2 * OPENER_WORDS)
    return list(found)[:OPENERS]


def tokenizer_of(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return byte-level BPE over small letters."""
    core = Tokenizer(models.BPE())
    core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=[STOP], initial_alphabet=alphabet, show_progress=False
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token=STOP, eos_token=STOP, pad_token=STOP)


def trained(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> LlamaForCausalLM:
    """Return a model that read the texts, in another order each epoch, as rows of one long text."""
    torch.manual_seed(SEED)
    model = untrained(len(tokenizer))
    documents = [[*ids, tokenizer.eos_token_id] for ids in tokenizer(list(texts)).input_ids]
    steps_of_epoch = sum(map(len, documents)) // (ROWS * ROW_LENGTH)
    steps = EPOCHS * steps_of_epoch
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / WARMUP) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
    )
    order = random.Random(SEED)
    for step in track(range(steps), "small model"):
        place = step % steps_of_epoch
        if place == 0:
            rows = _rows(order.sample(documents, len(documents)))
        batch = rows[place * ROWS : (place + 1) * ROWS]
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return model.eval()


def untrained(vocabulary: int) -> LlamaForCausalLM:
    """Return the model before its first text."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=WIDTH,
            intermediate_size=3 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )
    )


@torch.no_grad()
def loss(model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> float:
    """Return the mean of -log p over all tokens of the texts, each one's stop included, in nats."""
    total, count = 0.0, 0
    for text in texts:
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text).input_ids, tokenizer.eos_token_id]])
        predicted = ids.shape[1] - 1
        total += float(model(input_ids=ids, labels=ids).loss) * predicted
        count += predicted
    return total / count


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _rows(documents: Sequence[Sequence[int]]) -> Tensor:
    """Return the documents end to end, cut into rows."""
    flat = torch.tensor([token for document in documents for token in document])
    return flat[: len(flat) // ROW_LENGTH * ROW_LENGTH].view(-1, ROW_LENGTH)


if __name__ == "__main__":
    made()
