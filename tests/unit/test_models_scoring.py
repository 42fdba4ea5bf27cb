"""Hidden states and heads give the logits that the model itself gives, in every family; others are refused."""

import pytest
import torch
import transformers as hf
from tiny_run import SIZES, perturb, policy, save_family

from kleash.errors import ModelError
from kleash.models.batch import collate
from kleash.models.scoring import logits_scale
from kleash.rollout.decoding import DecodingSampler

PROMPTS = [[256, 97, 98, 99], [256, 120]]
RESPONSES = [[100, 101], [121, 122, 123]]

FAMILIES = {
    "llama": hf.LlamaConfig(**SIZES),
    "qwen2 (biases)": hf.Qwen2Config(**SIZES),
    "qwen3": hf.Qwen3Config(**SIZES, head_dim=16),
    "gemma3": hf.Gemma3TextConfig(**SIZES, head_dim=16),
    "granite (divided logits)": hf.GraniteConfig(**SIZES, logits_scaling=4.0, embedding_multiplier=2.0),
    "cohere (scaled logits)": hf.CohereConfig(**SIZES, logit_scale=0.25),
    "gpt2 (transposed layers)": hf.GPT2Config(
        vocab_size=261, n_embd=32, n_layer=2, n_head=2, n_positions=512, bos_token_id=256, eos_token_id=257
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    return save_family(tmp_path_factory.mktemp("family"), FAMILIES[request.param])


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
def test_hidden_states_times_the_head_are_the_logits(family):
    ours = policy(family)
    perturb(ours)
    batch = collate(PROMPTS, RESPONSES, pad=258, device=torch.device("cpu"))
    with torch.no_grad():
        logits = ours.hidden(batch) @ ours.head.T
        rows = []
        for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
            whole = ours.causal_lm(torch.tensor([prompt + response])).logits[0]
            rows.append(whole[len(prompt) - 1 : -1])
    torch.testing.assert_close(logits, torch.cat(rows), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
def test_the_sampler_reports_the_models_own_log_probabilities(family):
    """The folded copy with its cache against one plain forward pass of the adapted model, at temperature 0.7."""
    ours = policy(family)
    perturb(ours)
    sampler = DecodingSampler(ours.model_to_sample(), ours.tokenizer)
    done = sampler.sample(PROMPTS, num_samples=2, max_length=6, temperature=0.7, seed=0)
    for i, completion in enumerate(done):
        prompt = PROMPTS[i // 2]
        ids = torch.tensor([[*prompt, *completion.token_ids]])
        with torch.no_grad():
            logprobs = (ours.causal_lm(ids).logits[0] / 0.7).log_softmax(-1)[len(prompt) - 1 : -1]
        expected = logprobs.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, rtol=2e-4, atol=2e-4)


def test_scale_is_read_from_the_config():
    assert logits_scale(FAMILIES["llama"]) == 1.0
    assert logits_scale(FAMILIES["granite (divided logits)"]) == 0.25
    assert logits_scale(FAMILIES["cohere (scaled logits)"]) == 0.25


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (hf.Gemma2Config(**SIZES, head_dim=16), r"caps its logits with tanh: the exact KL is not implemented for that"),
        (hf.PhiConfig(**SIZES), r"has a bias in its output layer, which is not supported"),
    ],
    ids=["capped", "biased"],
)
def test_heads_that_are_not_a_plain_product_are_refused(tmp_path, config, message):
    with pytest.raises(ModelError, match=message):
        policy(save_family(tmp_path, config))
