"""Equal weights have equal digests, whatever their order; anything else differs."""

import hashlib

import torch

from kleash.models.fingerprint import fingerprint

A, B = torch.tensor([[1.0, 2.0]]), torch.tensor([3.0], dtype=torch.bfloat16)


def test_the_digest_by_hand():
    expected = hashlib.sha256(b"a (1, 2) torch.float32;" + bytes.fromhex("0000803f00000040")).hexdigest()
    assert fingerprint([("a", A)]) == expected


def test_order_and_layout_do_not_matter():
    assert fingerprint([("a", A), ("b", B)]) == fingerprint([("b", B.clone()), ("a", A.clone())])
    square = torch.arange(4.0).view(2, 2)
    assert fingerprint([("a", square.T)]) == fingerprint([("a", square.T.contiguous())])


def test_name_shape_dtype_and_one_bit_matter():
    nearly = A.clone()
    nearly[0, 0] = torch.nextafter(nearly[0, 0], torch.tensor(2.0))
    others = [[("b", A)], [("a", A.view(2))], [("a", A.view(torch.int32))], [("a", nearly)], [("a", A), ("b", B)]]
    digests = {fingerprint(other) for other in [[("a", A)], *others]}
    assert len(digests) == 6
