"""Take a reply of a run apart: each token's log-probabilities, its log-ratio, and the exact KL at its prefix.

    python examples/kl_by_hand.py runs/NAME "When the snow began to fall"

Of the held-out replies to that prompt after training, the one with the least KL and the one with the most are printed
as Markdown tables. The KL that the run recorded for each token is checked against the one that is computed here.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from kleash.config.schema import Model
from kleash.kl import estimators, exact
from kleash.models.loading import load_policy
from kleash.models.policy import Policy
from kleash.runs.reader import RunReader
from kleash.runs.records import Sample


def main() -> None:
    """Read the run, load its last checkpoint, and print two replies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a finished run with an adapter")
    parser.add_argument("prompt", help="one of its held-out prompts")
    given = parser.parse_args()
    with RunReader(given.run) as reader:
        replies = sorted((one for one in reader.samples("after") if one.prompt == given.prompt), key=lambda one: one.kl)
        name, checkpoint = reader.config["model"]["name"], reader.latest_checkpoint()
    if not replies or checkpoint is None:
        parser.error(f"{given.run} has no checkpoint, or no held-out replies to {given.prompt!r}")
    policy = load_policy(Model(name=name, adapter=str(checkpoint.path), dtype="float32"), context=512, seed=0)
    for reply in (replies[0], replies[-1]):
        print(f"\n**{reply.prompt}**{reply.completion} — reward {reply.reward:.2f}, KL {reply.kl:.3f} nats\n")
        print(table(policy, reply))


def table(policy: Policy, reply: Sample) -> str:
    """Return a row for each token, and the sums."""
    prompt = policy.tokenizer.encode(reply.prompt)
    completion = [policy.tokenizer.encode(token, add_special_tokens=False)[0] for token in reply.tokens]
    ids = torch.tensor([prompt + completion])
    ours = next_token_logprobs(policy, ids, len(prompt))
    with policy.switched(None):
        theirs = next_token_logprobs(policy, ids, len(prompt))
    chosen = ids[0, len(prompt) :, None]
    log_policy, log_reference = (logprobs.gather(1, chosen)[:, 0] for logprobs in (ours, theirs))
    k1, kl = estimators.k1(log_policy, log_reference), exact.kl(ours, theirs)
    torch.testing.assert_close(kl, torch.tensor(reply.token_kl), atol=0.02, rtol=0.02)
    lines = ["| token | log policy | log reference | log-ratio | exact KL | summed up |", "|---|---|---|---|---|---|"]
    for row in zip(reply.tokens, log_policy, log_reference, k1, kl, kl.cumsum(0), strict=True):
        text = row[0].replace("|", "\\|")
        numbers = " | ".join(f"{float(value):.3f}".replace("-", "−") for value in row[1:])
        lines.append(f"| `{text}` | {numbers} |")
    sums = " | ".join(f"{float(each.sum()):.3f}".replace("-", "−") for each in (log_policy, log_reference, k1, kl))
    return "\n".join([*lines, f"| **sum** | {sums} | |"])


@torch.no_grad()
def next_token_logprobs(policy: Policy, ids: Tensor, start: int) -> Tensor:
    """Return log-probabilities of every token at each position of the reply, [T, V]."""
    return policy.causal_lm(input_ids=ids).logits[0, start - 1 : -1].float().log_softmax(-1)


if __name__ == "__main__":
    main()
