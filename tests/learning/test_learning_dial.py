"""What is exported within a limit is within it on other prompts, measured by PEFT and transformers alone."""

import random

import pytest
import torch
from peft import PeftModel
from tiny_run import settings
from transformers import AutoModelForCausalLM, AutoTokenizer

from kleash.models.names import load_tokenizer
from kleash.training.export import export_within
from kleash.training.observer import Silent
from kleash.training.run import train

LENGTH, LIMIT, REPEATS = 10, 3.0, 10

pytestmark = pytest.mark.slow


NUMBERS = random.Random(0).sample(range(100_000), 90 + REPEATS * 600)


def prompts(first, count):
    """Some of one population, each in one call alone; of one length, so that no row needs padding."""
    return [f"prompt number {number:05d} says" for number in NUMBERS[first : first + count]]


def measured_afresh(base_folder, adapter, texts):
    """Mean KL(adapted ‖ base) per sequence over one sampled reply to each text, and its standard error, nats."""
    stops = list(load_tokenizer(str(base_folder)).stop_ids)
    tokenizer = AutoTokenizer.from_pretrained(base_folder)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32), adapter)
    model.eval()
    ids = tokenizer(texts, return_tensors="pt")["input_ids"]
    sampled = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "max_new_tokens": LENGTH}
    with torch.no_grad():
        whole = model.generate(
            ids, attention_mask=torch.ones_like(ids), eos_token_id=stops, pad_token_id=tokenizer.pad_token_id, **sampled
        )
        ours = model(whole).logits[:, ids.shape[1] - 1 : -1].double().log_softmax(-1)
        with model.disable_adapter():
            base = model(whole).logits[:, ids.shape[1] - 1 : -1].double().log_softmax(-1)
    stopped = torch.isin(whole[:, ids.shape[1] :], torch.tensor(stops)).long()
    counts = stopped.cumsum(1) - stopped == 0
    kl = ((ours.exp() * (ours - base)).sum(-1) * counts).sum(1)
    return float(kl.mean()), float(kl.std() / len(kl) ** 0.5)


@pytest.fixture(scope="module")
def run(tiny_model_dir, tmp_path_factory):
    """About 6 nats from its reference."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "prompts.txt").write_text("\n".join(prompts(0, 60)), encoding="utf-8")
    config = settings(tiny_model_dir, folder, "prompts.held_out=16", "training.learning_rate=0.02", "training.steps=8")
    return train(config, observer=Silent())


def test_nine_of_ten_exports_are_within_their_limit_on_other_prompts(run, tiny_model_dir, tmp_path):
    found = []
    for repeat in range(REPEATS):
        asked, out = tmp_path / f"prompts_{repeat}.txt", tmp_path / f"out_{repeat}"
        asked.write_text("\n".join(prompts(90 + 600 * repeat, 64)), encoding="utf-8")
        dial = export_within(run, out, max_nats=LIMIT, prompts=str(asked), step=None, merge=False, observer=Silent())
        kl, error = measured_afresh(tiny_model_dir, out, prompts(90 + 600 * repeat + 64, 512))
        found.append((dial.scale, dial.at(dial.scale).kl.value, kl, error))
    assert sum(kl <= LIMIT for *_, kl, _ in found) >= 9, found
    for scale, _, kl, error in found:
        assert 0 < scale < 1
        assert kl > 0.7 * LIMIT  # the limit is used
        assert error < 0.1
    assert measured_afresh(tiny_model_dir, run / "checkpoints" / "step_8", prompts(90, 512))[0] > 1.5 * LIMIT
