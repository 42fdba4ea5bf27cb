"""Exact KL between two next-token distributions, over the whole vocabulary, at each visited prefix.

Summed over the prefixes that the policy visited, it is an unbiased estimate of KL(policy ‖ reference) with the noise
of the sampled token taken out (Rao-Blackwellised). `kl` takes logits; `linear_kl` takes hidden states and head
weights and never holds the logits of all tokens at once: they are made chunk by chunk, and made again in backward.

Axes: N tokens, H hidden, V vocabulary. Unit of every KL and entropy here: nats per position.

Source: Amini et al., arXiv 2504.10637. Recomputation in backward as in Liger-Kernel's chunked losses; the gradient
formulas are in `_LinearKL.backward`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from kleash.ops.chunked_logits import KEEP_BYTES, ChunkedLogits, cut, rows_at_once


class LinearKL(NamedTuple):
    """What `linear_kl` measures for each token, every field `[N]`, float32 (float64 for float64 input)."""

    policy_logprobs: Float[Tensor, " N"]
    reference_logprobs: Float[Tensor, " N"]
    reverse_kl: Float[Tensor, " N"]
    forward_kl: Float[Tensor, " N"]
    entropy: Float[Tensor, " N"]


class LinearComparison(NamedTuple):
    """What `linear_comparison` measures for each token, every field `[N]`, float32 (float64 for float64 input)."""

    policy_logprobs: Float[Tensor, " N"]
    reference_logprobs: Float[Tensor, " N"]
    reverse_kl: Float[Tensor, " N"]
    forward_kl: Float[Tensor, " N"]
    entropy: Float[Tensor, " N"]
    reference_entropy: Float[Tensor, " N"]
    same_top: Bool[Tensor, " N"]
    """Both prefer the same token."""


def kl(
    policy_logits: Float[Tensor, "*shape V"], reference_logits: Float[Tensor, "*shape V"]
) -> Float[Tensor, "*shape"]:
    """KL(policy ‖ reference) = sum_v p_v (log p_v - log q_v) at each position.

    Unit: nats per position. Sign: >= 0 up to rounding; identical logits give exactly 0.0 in every dtype.
    Gradient: to both sides. For the forward KL swap the arguments.

    Example:
        >>> import torch
        >>> kl(torch.tensor([0.5, 0.5]).log(), torch.tensor([0.25, 0.75]).log())
        tensor(0.1438)
    """
    wide = torch.promote_types(policy_logits.dtype, torch.float32)
    log_p = policy_logits.to(wide).log_softmax(dim=-1)
    log_q = reference_logits.to(wide).log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def linear_kl(
    policy_hidden: Float[Tensor, "N H"],
    policy_head: Float[Tensor, "V H"],
    reference_hidden: Float[Tensor, "N G"],
    reference_head: Float[Tensor, "W G"],
    targets: Int[Tensor, " N"],
    *,
    temperature: float = 1.0,
    chunk_size: int | None = None,
) -> LinearKL:
    """Log-probabilities, both KLs and the entropy of each token, straight from hidden states and heads.

    Logits are hidden @ head.T / temperature, on both sides. Values and gradients do not depend on `chunk_size`.

    Unit: nats. Sign: KLs >= 0 up to rounding; identical hidden states and heads give exactly 0.0.
    Gradient: to policy_hidden and policy_head, of all five but `reference_logprobs`; the reference is a constant.
        Only the outputs that were used cost anything in backward.
    Precision: products run in the dtype of the inputs, everything after them in float32 or wider.

    Args:
        policy_hidden: last hidden states of the policy at the positions that predict `targets`.
        policy_head: output embedding of the policy.
        reference_hidden: the same positions under the reference.
        reference_head: output embedding of the reference, W = V rows; the same tensor where the head is shared.
        targets: sampled tokens.
        temperature: that of sampling; both models are divided by it.
        chunk_size: tokens held as logits at once; by default what fits `kleash.ops.chunked_logits.CHUNK_BYTES`.

    Raises:
        ValueError: the heads have different vocabularies, or temperature is not positive.
    """
    rows = _checked_rows(policy_head, reference_head, temperature, chunk_size)
    return LinearKL(
        *_LinearKL.apply(  # type: ignore[no-untyped-call]
            policy_hidden,
            policy_head,
            reference_hidden.detach(),
            reference_head.detach(),
            targets,
            temperature,
            rows,
        )
    )


@torch.no_grad()
def linear_comparison(
    policy_hidden: Float[Tensor, "N H"],
    policy_head: Float[Tensor, "V H"],
    reference_hidden: Float[Tensor, "N G"],
    reference_head: Float[Tensor, "W G"],
    targets: Int[Tensor, " N"],
    *,
    temperature: float = 1.0,
    chunk_size: int | None = None,
) -> LinearComparison:
    """Everything `linear_kl` measures, and the reference's entropy and whether both have the same most likely token.

    Arguments, units, sign, precision and errors are those of `linear_kl`, and so are the numbers it shares with it.
    Gradient: none. Where several tokens are equally likely, the one of lowest id is a model's most likely token.
    """
    count = policy_hidden.shape[0]
    rows = max(1, min(_checked_rows(policy_head, reference_head, temperature, chunk_size), count))
    policy, reference = ChunkedLogits(policy_head, rows, temperature), ChunkedLogits(reference_head, rows, temperature)
    scratch = (policy.scratch(), policy.scratch())
    out = policy_hidden.new_empty(6, count, dtype=policy.wide.dtype)
    same_top = torch.empty(count, dtype=torch.bool, device=policy_hidden.device)
    for chunk in cut(0, count, rows):
        policy.multiply(policy_hidden, chunk)
        reference.multiply(reference_hidden, chunk)
        for part in cut(chunk.start, chunk.stop, policy.block):
            ours, theirs = policy[part], reference[part]
            same_top[part] = ours.argmax(dim=1) == theirs.argmax(dim=1)
            out[:5, part], log_z = _measure(ours, theirs, targets[part], scratch)
            probs, product = scratch[0][: len(theirs)], scratch[1][: len(theirs)]
            out[5, part] = log_z[1] - torch.mul(probs, theirs, out=product).sum(dim=1)
    return LinearComparison(out[0], out[1], out[2], out[3], out[4], out[5], same_top)


def _checked_rows(
    policy_head: Float[Tensor, "V H"], reference_head: Float[Tensor, "W G"], temperature: float, chunk_size: int | None
) -> int:
    """Tokens held as logits at once, for heads and a temperature that have a KL."""
    if policy_head.shape[0] != reference_head.shape[0]:
        raise ValueError(
            f"policy and reference heads have {policy_head.shape[0]} and {reference_head.shape[0]} rows: "
            "a KL needs one vocabulary. Cut padding rows first, or use models that share a tokenizer"
        )
    return rows_at_once(policy_head, temperature, chunk_size)


class _LinearKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        policy_hidden: Tensor,
        policy_head: Tensor,
        reference_hidden: Tensor,
        reference_head: Tensor,
        targets: Tensor,
        temperature: float,
        rows: int,
    ) -> tuple[Tensor, ...]:
        count = policy_hidden.shape[0]
        rows = max(1, min(rows, count))
        size = 2 * count * policy_head.shape[0] * policy_head.itemsize
        keep = size <= KEEP_BYTES and any(ctx.needs_input_grad[:2])
        policy = ChunkedLogits(policy_head, count if keep else rows, temperature)
        reference = ChunkedLogits(reference_head, count if keep else rows, temperature)
        scratch = (policy.scratch(), policy.scratch())
        out = policy_hidden.new_empty(5, count, dtype=policy.wide.dtype)
        log_z = out.new_empty(2, count)
        for chunk in cut(0, count, rows):
            policy.multiply(policy_hidden, chunk)
            reference.multiply(reference_hidden, chunk)
            for part in cut(chunk.start, chunk.stop, policy.block):
                out[:, part], log_z[:, part] = _measure(policy[part], reference[part], targets[part], scratch)
        ctx.save_for_backward(policy_hidden, policy_head, reference_hidden, reference_head, targets, out, log_z)
        ctx.temperature, ctx.rows = temperature, rows
        ctx.kept = (policy.product, reference.product) if keep else (None, None)
        ctx.set_materialize_grads(False)
        outputs = out.unbind(0)
        ctx.mark_non_differentiable(outputs[1])
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Chain rule to the logits z of the policy, with p and q the two distributions and t the target.

        d log p_t = 1_t - p          d reverse = p (log p - log q - reverse)
        d forward = p - q            d entropy = -p (log p + entropy)
        """
        policy_hidden, policy_head, reference_hidden, reference_head, targets, out, log_z = ctx.saved_tensors
        of_logprob, _, of_reverse, of_forward, _ = grads
        needs_reference = of_reverse is not None or of_forward is not None
        policy = ChunkedLogits(policy_head, ctx.rows, ctx.temperature, ctx.kept[0])
        reference = ChunkedLogits(reference_head, ctx.rows, ctx.temperature, ctx.kept[1]) if needs_reference else None
        scratch = (policy.scratch(), policy.scratch())
        narrow = policy_head.new_empty(ctx.rows, policy_head.shape[0])
        grad_hidden = torch.empty_like(policy_hidden)
        grad_head = torch.zeros_like(policy_head, dtype=policy.wide.dtype) if ctx.needs_input_grad[1] else None
        for chunk in cut(0, policy_hidden.shape[0], ctx.rows):
            policy.multiply(policy_hidden, chunk)
            if reference is not None:
                reference.multiply(reference_hidden, chunk)
            for part in cut(chunk.start, chunk.stop, policy.block):
                of_logits = _grad_of_logits(
                    policy[part],
                    None if reference is None else reference[part],
                    scratch,
                    [None if grad is None else grad[part, None] for grad in grads],
                    out[:, part, None],
                    log_z[:, part, None],
                )
                if of_logprob is not None:
                    of_logits.scatter_add_(1, targets[part, None], of_logprob[part, None])
                if ctx.temperature != 1.0:
                    of_logits.div_(ctx.temperature)
                narrow[part.start - chunk.start : part.stop - chunk.start].copy_(of_logits)
            of_chunk = narrow[: chunk.stop - chunk.start]
            torch.mm(of_chunk, policy_head, out=grad_hidden[chunk])
            if grad_head is not None:
                grad_head.add_(of_chunk.T @ policy_hidden[chunk])
        if grad_head is not None:
            grad_head = grad_head.to(policy_head.dtype)
        return grad_hidden, grad_head, None, None, None, None, None


def _measure(
    policy: Tensor, reference: Tensor, targets: Tensor, scratch: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """The five outputs `[5, n]` and both log-normalisers `[2, n]` of one block of logits `[n, V]`.

    Overwrites the policy's logits, and leaves the reference's probabilities in the first scratch.
    """
    probs, product = scratch[0][: policy.shape[0]], scratch[1][: policy.shape[0]]
    chosen_policy = policy.gather(1, targets[:, None])[:, 0]
    chosen_reference = reference.gather(1, targets[:, None])[:, 0]
    torch.softmax(policy, dim=1, out=probs)
    policy_max, policy_log_sum = policy.amax(dim=1), -probs.amax(dim=1).log()
    mean_logit = torch.mul(probs, policy, out=product).sum(dim=1)
    gap = policy.sub_(reference)
    mean_gap = torch.mul(probs, gap, out=product).sum(dim=1)
    torch.softmax(reference, dim=1, out=probs)
    reference_max, reference_log_sum = reference.amax(dim=1), -probs.amax(dim=1).log()
    mean_gap_reference = torch.mul(probs, gap, out=product).sum(dim=1)
    log_z, log_z_reference = policy_max + policy_log_sum, reference_max + reference_log_sum
    shift = (policy_max - reference_max) + (policy_log_sum - reference_log_sum)
    out = torch.stack(
        [
            chosen_policy - log_z,
            chosen_reference - log_z_reference,
            mean_gap - shift,
            shift - mean_gap_reference,
            log_z - mean_logit,
        ]
    )
    return out, torch.stack([log_z, log_z_reference])


def _grad_of_logits(
    policy: Tensor,
    reference: Tensor | None,
    scratch: tuple[Tensor, Tensor],
    grads: list[Tensor | None],
    out: Tensor,
    log_z: Tensor,
) -> Tensor:
    """Gradient to the policy's logits `[n, V]` without the target's own term, written over the scratch."""
    of_logprob, _, of_reverse, of_forward, of_entropy = grads
    slope, constant = torch.zeros_like(log_z[0]), torch.zeros_like(log_z[0])
    if of_logprob is not None:
        constant = constant - of_logprob
    if of_reverse is not None:
        slope = slope + of_reverse
        constant = constant - of_reverse * (log_z[0] - log_z[1] + out[2])
    if of_forward is not None:
        constant = constant + of_forward
    if of_entropy is not None:
        slope = slope - of_entropy
        constant = constant + of_entropy * (log_z[0] - out[4])
    grad, probs = scratch[0][: policy.shape[0]], scratch[1][: policy.shape[0]]
    torch.mul(policy, slope, out=grad).add_(constant)
    if of_reverse is not None and reference is not None:
        grad.addcmul_(reference, -of_reverse)
    grad.mul_(torch.softmax(policy, dim=1, out=probs))
    if of_forward is not None and reference is not None:
        grad.addcmul_(torch.softmax(reference, dim=1, out=probs), -of_forward)
    return grad
