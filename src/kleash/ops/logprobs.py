"""Log-probabilities of given tokens, straight from hidden states and the head: what SFT, DPO and their kin score with.

The logits `[N, V]` of all tokens are never held, unless they are small: they are made chunk by chunk, and made again
in backward. For the KL to a second model beside them use `kleash.kl.exact.linear_kl`, which gives the same numbers.

Axes: N tokens, H hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from kleash.ops.chunked_logits import KEEP_BYTES, ChunkedLogits, cut, rows_at_once


def linear_logprobs(
    hidden: Float[Tensor, "N H"],
    head: Float[Tensor, "V H"],
    targets: Int[Tensor, " N"],
    *,
    temperature: float = 1.0,
    chunk_size: int | None = None,
) -> Float[Tensor, " N"]:
    """Log-probability of each target, log softmax(hidden @ head.T / temperature)[target].

    Unit: nats per token. Sign: <= 0 up to rounding.
    Gradient: to hidden and head, each only where it is asked for. Not twice differentiable.
    Precision: products run in the dtype of the inputs, everything after them in float32 (float64 for float64), and
        so do sums over tokens for the head's gradient. The result is float32 or float64.
    Memory: logits of `chunk_size` tokens, in the dtype of the head; where a gradient is asked for and all of them fit
        `kleash.ops.chunked_logits.KEEP_BYTES`, they are kept for backward. No tokens give no numbers.

    Args:
        hidden: last hidden states at the positions that predict `targets`.
        head: output embedding.
        targets: the tokens that are scored.
        temperature: divides the logits; 1 for a model as it is.
        chunk_size: tokens held as logits at once; by default what fits `kleash.ops.chunked_logits.CHUNK_BYTES`.

    Raises:
        ValueError: temperature is not positive.

    Source: recomputation in backward as in Liger-Kernel's chunked losses.

    Example:
        >>> import torch
        >>> linear_logprobs(torch.eye(2), torch.eye(2), torch.tensor([0, 0]))
        tensor([-0.3133, -1.3133])
    """
    rows = rows_at_once(head, temperature, chunk_size)
    out: Tensor = _LinearLogprobs.apply(hidden, head, targets, temperature, rows)  # type: ignore[no-untyped-call]
    return out


class _LinearLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, temperature: float, rows: int) -> Tensor:
        count = hidden.shape[0]
        rows = max(1, min(rows, count))
        keep = count * head.shape[0] * head.itemsize <= KEEP_BYTES and any(ctx.needs_input_grad[:2])
        logits = ChunkedLogits(head, count if keep else rows, temperature)
        out = hidden.new_empty(count, dtype=logits.wide.dtype)
        log_z = torch.empty_like(out)
        for chunk in cut(0, count, rows):
            logits.multiply(hidden, chunk)
            for part in cut(chunk.start, chunk.stop, logits.block):
                out[part], log_z[part] = _logprobs(logits[part], targets[part, None])
        ctx.save_for_backward(hidden, head, targets, log_z)
        ctx.temperature, ctx.rows = temperature, rows
        ctx.kept = logits.product if keep else None
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Chain rule to the logits, with p the distribution and t the target: d log p_t = 1_t - p."""
        hidden, head, targets, log_z = ctx.saved_tensors
        logits = ChunkedLogits(head, ctx.rows, ctx.temperature, ctx.kept)
        of_logits = head.new_empty(ctx.rows, head.shape[0])
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_head = torch.zeros_like(head, dtype=logits.wide.dtype) if ctx.needs_input_grad[1] else None
        of_logit = grad[:, None] / ctx.temperature
        for chunk in cut(0, hidden.shape[0], ctx.rows):
            logits.multiply(hidden, chunk)
            for part in cut(chunk.start, chunk.stop, logits.block):
                probs = logits[part].sub_(log_z[part, None]).exp_()
                slope = probs.mul_(-of_logit[part]).scatter_add_(1, targets[part, None], of_logit[part])
                of_logits[part.start - chunk.start : part.stop - chunk.start].copy_(slope)
            of_chunk = of_logits[: chunk.stop - chunk.start]
            if grad_hidden is not None:
                torch.mm(of_chunk, head, out=grad_hidden[chunk])
            if grad_head is not None:
                grad_head.add_(of_chunk.T @ hidden[chunk])
        if grad_head is not None:
            grad_head = grad_head.to(head.dtype)
        return grad_hidden, grad_head, None, None, None


def _logprobs(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities and log-normalisers `[n]` of one block of logits `[n, V]`, which it overwrites."""
    largest = logits.amax(dim=1, keepdim=True)
    chosen = logits.sub_(largest).gather(1, targets)
    log_sum = logits.exp_().sum(dim=1, keepdim=True).log()
    return (chosen - log_sum)[:, 0], (largest + log_sum)[:, 0]
