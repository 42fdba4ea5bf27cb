"""Rounded copies: the numbers they hold, and what they share."""

import torch
from tiny_model import save_tiny_model
from transformers import AutoModelForCausalLM

from kleash.gauge.rounding import bfloat16_copy, int4_copy, to_bfloat16, to_int4


def test_bfloat16_keeps_8_significant_bits_and_the_dtype():
    found = to_bfloat16(torch.tensor([1.0, 1.0 + 2**-9, 1.0 + 2**-7, 3.14159]))
    assert found.dtype == torch.float32
    assert found.tolist() == [1.0, 1.0, 1.0 + 2**-7, 3.140625]


def test_int4_rounds_each_block_to_sixteenths_of_its_largest_entry():
    """Largest entry -8, so that the step is 1: integers from -8 to 7 stay, what is above 7 becomes 7."""
    block = torch.cat([torch.tensor([-8.0, 7.0, 7.9, 0.4, 0.6, -3.2]), torch.zeros(26)])
    other = torch.cat([torch.tensor([0.8, -0.7, 0.04]), torch.zeros(29)])
    found = to_int4(torch.stack([block, other]))
    assert found[0, :6].tolist() == [-8.0, 7.0, 7.0, 0.0, 1.0, -3.0]
    torch.testing.assert_close(found[1, :3], torch.tensor([0.8, -0.7, 0.0]))


def test_int4_blocks_do_not_mix_and_a_short_last_block_counts():
    weight = torch.cat([torch.full((1, 32), 100.0), torch.tensor([[0.01, 0.02, 0.0]])], dim=1)
    found = to_int4(weight)
    assert found.shape == (1, 35)
    torch.testing.assert_close(found, weight, atol=0.0013, rtol=0)
    assert to_int4(torch.zeros(2, 40)).tolist() == torch.zeros(2, 40).tolist()


def test_copies_leave_the_original_alone_and_keep_ties(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(save_tiny_model(tmp_path), dtype=torch.float32)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    narrow, packed = bfloat16_copy(model), int4_copy(model)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert narrow.get_output_embeddings().weight is narrow.get_input_embeddings().weight
    for name, parameter in narrow.named_parameters():
        assert torch.equal(parameter, before[name].bfloat16().float()), name
    assert packed.get_output_embeddings().weight is model.get_output_embeddings().weight
    projection = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(packed.get_parameter(projection), before[projection])
    assert packed.get_parameter("model.norm.weight") is model.get_parameter("model.norm.weight")
