"""The enumerable toy of `kleash.testing` as Hugging Face models: a tokenizer of three tokens and 128 prompts."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from transformers import DynamicCache, LlamaConfig, PreTrainedTokenizerFast

from kleash.testing import EOS, HORIZON, VOCABULARY_SIZE

PROMPT_TOKENS = 7
PROMPTS = ["".join(letters) for letters in product("ab", repeat=PROMPT_TOKENS)]
PREFIXES = 7


class _Table(nn.Module):
    """Looks up which of the 7 prefixes the tokens after the prompt are; its hidden state is that prefix, one-hot."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: DynamicCache | None = None,
        use_cache: bool = False,
    ) -> Any:
        seen = input_ids[:, None, :, None].float()
        if past_key_values is not None:
            seen, _ = past_key_values.update(seen, seen, 0)
        tokens = seen[:, 0, :, 0].long()
        new = input_ids.shape[1]
        places = range(tokens.shape[1] - new, tokens.shape[1])
        prefix = torch.stack([self._prefix(tokens[:, PROMPT_TOKENS : place + 1]) for place in places], dim=1)
        return SimpleNamespace(last_hidden_state=nn.functional.one_hot(prefix, PREFIXES).float())

    @staticmethod
    def _prefix(written: Tensor) -> Tensor:
        """Index in the order (), (0), (1), (0 0), (0 1), (1 0), (1 1); anything after a stop is never looked at."""
        index = torch.zeros(written.shape[0], dtype=torch.long)
        for column in written[:, : HORIZON - 1].clamp(max=1).T:
            index = 2 * index + 1 + column
        return index


class ToyModel(nn.Module):
    """A table of logits [7, 3] with the surface of a Hugging Face causal language model."""

    def __init__(self, logits: Tensor, name: str) -> None:
        super().__init__()
        self.config = LlamaConfig(
            vocab_size=VOCABULARY_SIZE,
            num_hidden_layers=1,
            max_position_embeddings=PROMPT_TOKENS + HORIZON,
            eos_token_id=EOS,
            bos_token_id=None,
        )
        self.config._name_or_path = name
        self.base_model = _Table()
        self.head = nn.Linear(PREFIXES, VOCABULARY_SIZE, bias=False)
        self.head.weight = nn.Parameter(logits.T.float().contiguous(), requires_grad=False)
        self.dtype, self.device = torch.float32, torch.device("cpu")

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """`a` is 0, `b` is 1, `</s>` is 2."""
    inner = Tokenizer(models.WordLevel({"a": 0, "b": 1, "</s>": EOS}))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="</s>", pad_token="</s>", model_max_length=PROMPT_TOKENS + HORIZON
    )
