"""The built-in sampler: batched decoding with a key-value cache, for any Hugging Face causal language model.

A prompt is read once and its cache repeated for its samples. Rows that have stopped leave the batch. A token is drawn
by inverting the cumulative distribution at one uniform number, which depends on the seed, the sequence and the
position alone: the batch size changes what is drawn by no more than its rounding does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from kleash.models.device import free_bytes
from kleash.models.scoring import head_weight, logits_scale
from kleash.models.tokenizer import Tokenizer
from kleash.rollout.sampler import Completion, Progress

COMPACT_BELOW = 0.75
"""Stopped rows are taken out of the cache when fewer than this share of its rows still go on."""
CPU_CACHE_BYTES = 2_000_000_000
GPU_CACHE_SHARE = 0.3
"""`batch_size = "auto"` decodes as many sequences at once as keep their keys and values within this memory; on a GPU,
within this share of what is free."""
GPU_STOP_CHECK = 16
"""Tokens between looks at what has stopped, on a GPU: each look waits for the device."""


class DecodingSampler:
    """Samples from `model`, whose weights the caller keeps up to date."""

    def __init__(self, model: Any, tokenizer: Tokenizer, *, batch_size: int | None = None) -> None:
        """Decode `batch_size` sequences at once; None: as many as the memory for keys and values allows."""
        self._model, self._tokenizer, self._batch_size = model, tokenizer, batch_size

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        num_samples: int,
        max_length: int,
        temperature: float,
        seed: int,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """See `kleash.rollout.sampler.Sampler`."""
        total = len(prompts) * num_samples
        report = progress or _silent
        uniforms = torch.rand((total, max_length), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        drawn: list[Completion | None] = [None] * total
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        chunks = self._chunks(prompts, order, num_samples, max_length)
        for number, chunk in enumerate(chunks):

            def decoded(position: int, number: int = number) -> None:
                report(number * max_length + position, len(chunks) * max_length)

            rows = [i * num_samples + g for i in chunk for g in range(num_samples)]
            decoding = _Decoding(self._model, self._tokenizer, temperature, max_length)
            done = decoding.run([prompts[i] for i in chunk], num_samples, uniforms[rows], decoded)
            for row, completion in zip(rows, done, strict=True):
                drawn[row] = completion
            decoded(max_length)
        return [completion for completion in drawn if completion is not None]

    def _chunks(
        self, prompts: Sequence[Sequence[int]], order: list[int], num_samples: int, max_length: int
    ) -> list[list[int]]:
        """Prompts of like length, together within the batch size; at least one prompt each."""
        chunks: list[list[int]] = []
        tokens = cache_tokens(self._model)
        for i in order:
            limit = self._batch_size or tokens // (len(prompts[i]) + max_length)
            if chunks and (len(chunks[-1]) + 1) * num_samples <= limit:
                chunks[-1].append(i)
            else:
                chunks.append([i])
        return chunks


def cache_tokens(model: Any) -> int:
    """Tokens whose keys and values fit the memory set aside for them."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    weight = next(model.parameters())
    per_token = 2 * config.num_hidden_layers * heads * size * weight.itemsize
    if weight.device.type == "cuda":
        return int(GPU_CACHE_SHARE * free_bytes(weight.device) / per_token)
    return CPU_CACHE_BYTES // int(per_token)


def _silent(done: int, total: int) -> None:
    """Tell nobody."""


class _Decoding:
    """One batch from prompt to last token."""

    def __init__(self, model: Any, tokenizer: Tokenizer, temperature: float, max_length: int) -> None:
        self.model, self.temperature, self.max_length = model, temperature, max_length
        self.pad = tokenizer.pad_id
        self.device = next(model.parameters()).device
        self.stops = torch.tensor(tokenizer.stop_ids, device=self.device)
        self.head, self.scale = head_weight(model), logits_scale(model.config)

    def run(
        self,
        prompts: Sequence[Sequence[int]],
        num_samples: int,
        uniforms: Float[Tensor, "B T"],
        decoded: Callable[[int], None],
    ) -> list[Completion]:
        hidden, cache, mask = self._read(prompts, num_samples)
        total, uniforms = (
            hidden.shape[0],
            uniforms.to(self.device, torch.float32 if self.device.type == "mps" else torch.float64),
        )
        tokens = torch.full((total, self.max_length), -1, device=self.device)
        logprobs = torch.zeros(total, self.max_length, device=self.device)
        rows = torch.arange(total, device=self.device)
        going = torch.ones(total, dtype=torch.bool, device=self.device)
        position = (mask.sum(dim=1) if mask is not None else torch.full_like(rows, len(prompts[0])))[:, None]
        look_every = 1 if self.device.type == "cpu" else GPU_STOP_CHECK
        for t in range(self.max_length):
            decoded(t)
            token, logprob = self._draw(hidden, uniforms[rows, t])
            tokens[rows, t] = torch.where(going, token, -1)
            logprobs[rows, t] = torch.where(going, logprob, 0.0)
            going = going & ~torch.isin(token, self.stops)
            if t + 1 == self.max_length:
                break
            if t % look_every == look_every - 1:
                left = int(going.sum())
                if left == 0:
                    break
                if left < COMPACT_BELOW * len(rows):
                    keep = going.nonzero()[:, 0]
                    cache.batch_select_indices(keep)
                    rows, going, token, position = rows[keep], going[keep], token[keep], position[keep]
                    mask = None if mask is None else mask[keep]
            if mask is not None:
                mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            hidden = self._forward(token[:, None], mask, position, cache)
            position = position + 1
        return _completions(tokens, logprobs, self.stops)

    def _read(
        self, prompts: Sequence[Sequence[int]], num_samples: int
    ) -> tuple[Float[Tensor, "B H"], Any, Int[Tensor, "B S"] | None]:
        """Read each prompt once, padded on the left, and repeat its state for its samples."""
        from transformers import DynamicCache

        width = max(len(prompt) for prompt in prompts)
        padded = [[self.pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        ids = torch.tensor(padded, device=self.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        mask = None
        position = torch.arange(width, device=self.device)[None, :].expand_as(ids)
        if any(len(prompt) < width for prompt in prompts):
            mask = (position >= width - lengths[:, None]).long()
            position = (position - (width - lengths[:, None])).clamp(min=0)
        cache = DynamicCache(config=self.model.config)
        hidden = self._forward(ids, mask, position, cache).repeat_interleave(num_samples, dim=0)
        cache.batch_repeat_interleave(num_samples)
        return hidden, cache, None if mask is None else mask.repeat_interleave(num_samples, dim=0)

    def _forward(
        self,
        ids: Int[Tensor, "B S"],
        mask: Int[Tensor, "B K"] | None,
        position: Int[Tensor, "B S"],
        cache: Any,
    ) -> Float[Tensor, "B H"]:
        if mask is not None and ids.shape[1] == 1 and self.model.config._attn_implementation == "sdpa":
            mask = mask.bool()[:, None, None, :]  # whole as it is: transformers would look at its values, and wait
        out = self.model.base_model(
            input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True
        )
        return out.last_hidden_state[:, -1]  # type: ignore[no-any-return]

    def _draw(
        self, hidden: Float[Tensor, "B H"], uniform: Float[Tensor, " B"]
    ) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
        """The first token at which the cumulative probability passes the uniform number, and its log-probability.

        Where the model gives NaN it is the last token, with NaN for its log-probability: scoring stops the run there.
        """
        logits = (hidden @ self.head.T).float() * (self.scale / self.temperature)
        probs = logits.softmax(dim=-1)
        cumulative = probs.cumsum(dim=-1)
        total = cumulative[:, -1:]
        threshold = torch.minimum((uniform[:, None] * total).float(), total.nextafter(total.new_zeros(())))
        token = torch.searchsorted(cumulative, threshold, right=True).clamp(max=probs.shape[-1] - 1)
        return token[:, 0], probs.gather(1, token)[:, 0].log()


def _completions(
    tokens: Int[Tensor, "B T"], logprobs: Float[Tensor, "B T"], stops: Int[Tensor, " K"]
) -> list[Completion]:
    """Cut each row after its last token; -1 marks what was never drawn."""
    lengths = (tokens >= 0).sum(dim=1).tolist()
    stop_ids = set(stops.tolist())
    return [
        Completion(tuple(row[:length]), tuple(scores[:length]), row[length - 1] in stop_ids)
        for row, scores, length in zip(tokens.tolist(), logprobs.tolist(), lengths, strict=True)
    ]
