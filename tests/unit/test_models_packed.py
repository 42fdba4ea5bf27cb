"""Documents that share a row against the same documents alone, by plain Hugging Face code."""

import pytest
import torch
import transformers as hf
from tiny_run import SIZES, perturb, policy, save_family

from kleash.models.packed import packed_hidden, side_by_side

PAD = 258
PADDING = (PAD, torch.device("cpu"))
DOCUMENTS = [
    ((256, 97, 98, 99), (104, 105, 257)),
    ((256,), (106, 107, 108, 109, 110, 257)),
    ((256, 100, 101), (111,)),
    ((256, 120, 121, 122, 123), (112, 113)),
]
ROWS = [[0, 2], [3, 1]]
ORDER = [0, 2, 3, 1]
FAMILIES = {
    "gpt2": hf.GPT2Config(
        vocab_size=261, n_embd=32, n_layer=2, n_head=2, n_positions=512, bos_token_id=256, eos_token_id=257
    ),
    "qwen2": hf.Qwen2Config(**SIZES),
    "granite": hf.GraniteConfig(**SIZES, logits_scaling=4.0),
}


@pytest.fixture(params=["llama", *FAMILIES])
def weights(request, tmp_path_factory, tiny_model_dir):
    folder = tiny_model_dir
    if request.param != "llama":
        folder = save_family(tmp_path_factory.mktemp(request.param), FAMILIES[request.param])
    made = policy(folder)
    perturb(made)
    return made


def packed_logprobs(weights, rows):
    batch = side_by_side(DOCUMENTS, rows, PADDING)
    logits = packed_hidden(weights.causal_lm, batch) @ weights.head.T
    return logits.log_softmax(-1).gather(1, batch.targets[:, None])[:, 0]


def alone(weights, document):
    """Log-probabilities of a document's completion, the whole document in a batch of its own."""
    read, predicted = DOCUMENTS[document]
    logits = weights.causal_lm(torch.tensor([[*read, *predicted]])).logits[0, len(read) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(predicted)[:, None])[:, 0]


def gradient(weights, loss):
    return torch.autograd.grad(loss, [p for _, p in weights.trained()])


def test_the_layout_by_hand():
    batch = side_by_side(DOCUMENTS, [[0, 2], [2]], PADDING)
    assert batch.input_ids.tolist() == [
        [256, 97, 98, 99, 104, 105, 257, 256, 100, 101, 111],
        [256, 100, 101, 111] + [PAD] * 7,
    ]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3], [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6]]
    assert batch.predicts_completion.nonzero().tolist() == [[0, 3], [0, 4], [0, 5], [0, 9], [1, 2]]
    assert batch.targets.tolist() == [104, 105, 257, 111, 111]


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
def test_packed_log_probabilities_are_those_of_each_document_alone(weights):
    with torch.no_grad():
        expected = torch.cat([alone(weights, document) for document in ORDER])
        assert len(set(expected.tolist())) == len(expected) == 12
        torch.testing.assert_close(packed_logprobs(weights, ROWS), expected, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
def test_the_gradient_is_that_of_the_documents_alone(weights):
    expected = gradient(weights, -sum(alone(weights, document).sum() for document in ORDER))
    found = gradient(weights, -packed_logprobs(weights, ROWS).sum())
    assert max(float(one.abs().max()) for one in expected) > 0.1
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_a_neighbour_changes_nothing(tiny_model_dir):
    weights = policy(tiny_model_dir)
    with torch.no_grad():
        beside = [packed_logprobs(weights, [[neighbour, 1]])[-6:] for neighbour in (0, 2, 3)]
    for other in beside[1:]:
        torch.testing.assert_close(beside[0], other, atol=1e-5, rtol=0)


def test_a_document_needs_something_before_its_completion():
    with pytest.raises(ValueError, match="document 1 has nothing before its completion: nothing predicts the first"):
        side_by_side([((256,), (1,)), ((), (1, 2))], [[0, 1]], PADDING)
