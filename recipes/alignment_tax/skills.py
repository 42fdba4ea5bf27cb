"""What the reward does not pay for: loss on general text that was never seen, and the sums of two digits, in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipes.small_model.make import DATA, loss, made, sums

GENERAL, TEXTS = ("editorials", "products"), 150
"""Kinds of text that neither the damaging SFT nor the reward is about, and held-out texts of each."""
ANSWER = 6
"""Tokens that an answer may take, its stop included."""


@dataclass(frozen=True)
class Skills:
    """Loss in nats per token of general text; sums that are answered to the letter, as a share."""

    loss: float
    sums: float


def measure(adapter: Path | None) -> Skills:
    """Measure the small model with an adapter on it, or as it was pretrained."""
    folder = made()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(adapter))
    texts = [
        text
        for kind in GENERAL
        for text in (DATA / f"{kind}_held_out.txt").read_text(encoding="utf-8").splitlines()[:TEXTS]
    ]
    return Skills(loss(model.eval(), tokenizer, texts), right_sums(model, tokenizer))


@torch.no_grad()
def right_sums(model: Any, tokenizer: Any) -> float:
    """Return the share of sums that the model completes greedily as they should be, up to its stop."""
    right = 0
    for text in sums():
        asked, answer = text.split(" is ")
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(f"{asked} is").input_ids]])
        said = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=ANSWER
        )
        right += tokenizer.decode(said[0, ids.shape[1] :], skip_special_tokens=True).strip() == answer
    return right / len(sums())
