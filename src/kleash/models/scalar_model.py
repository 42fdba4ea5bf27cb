"""A language model with one number for an answer: reward models and critics.

V(s) = w · h(s) (+ b), h the last hidden state at a position, w a head `[1, H]` in float32. A reward model reads it at
the last real token of prompt + completion, a critic before each response token. k members share one frozen backbone:
each has an adapter and a head of its own. One member alone may train its whole backbone instead.

A saved member is PEFT's sequence classification (`score` in modules_to_save), so that plain Hugging Face code loads it:

    AutoPeftModelForSequenceClassification.from_pretrained(folder, num_labels=1, pad_token_id=tokenizer.pad_token_id)

Both arguments are needed where the base is a causal model: PEFT reads them from its config, not beside the adapter.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from jaxtyping import Float
from peft import PeftModel
from peft.tuners.lora import Linear as PeftLoraLinear
from safetensors.torch import save_file
from torch import Tensor, nn

from kleash.models.batch import TokenBatch
from kleash.models.fingerprint import fingerprint
from kleash.models.saved_reward import ADAPTER_HEAD, ADAPTER_WEIGHTS, MODEL_HEAD, Rendering
from kleash.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class Member:
    """One scorer on the backbone.

    Attributes:
        adapter: PEFT's name of its adapter; None where the backbone itself is trained.
        head: float32 `H -> 1`; where the backbone is trained, the model's own `score`.
    """

    adapter: str | None
    head: nn.Linear


@final
@dataclass(frozen=True)
class ScalarModel:
    """Members over one backbone: `model.base_model`, with adapters in it (`peft_model`) or trained whole (None).

    `borrowed` says that the backbone is a policy's, so that only adapters and heads take memory of their own. The heads
    are no part of a borrowed model: nothing of its owner's weights or checkpoints changes.
    """

    name: str
    model: Any
    peft_model: PeftModel | None
    members: tuple[Member, ...]
    tokenizer: Tokenizer
    borrowed: bool

    @property
    def num_members(self) -> int:
        """How many scorers there are."""
        return len(self.members)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.members[0].head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The compute dtype of the backbone; heads are float32."""
        return self.model.get_input_embeddings().weight.dtype  # type: ignore[no-any-return]

    @property
    def extra_bytes(self) -> int:
        """Memory it takes: of a borrowed backbone only what was added to it."""
        own = sum(parameter.nbytes for _, parameter in self.trained())
        return own if self.borrowed else own + sum(parameter.nbytes for _, parameter in self._frozen())

    def token_values(self, batch: TokenBatch, member: int) -> Float[Tensor, " N"]:
        """Value before each response token, row by row: what the critic expects of the reply so far.

        Gradient: to the member's adapter and head (or whole backbone), if backward runs inside `active(member)`.
        """
        with self.active(member):
            return self._apply_head(self._hidden(batch)[batch.predicts_response], member)

    def scores(self, batch: TokenBatch, member: int) -> Float[Tensor, " B"]:
        """Score of each row, read at its last real token; the reward of prompt + completion.

        The token is found by its place, never by its id: padding may equal the stop token. Rows do not touch each
        other. Gradient: as for `token_values`.
        """
        rows = torch.arange(batch.input_ids.shape[0], device=batch.input_ids.device)
        if batch.attention_mask is None:
            last = torch.full_like(rows, batch.input_ids.shape[1] - 1)
        else:
            last = batch.attention_mask.sum(dim=1) - 1
        with self.active(member):
            return self._apply_head(self._hidden(batch)[rows, last], member)

    @contextlib.contextmanager
    def active(self, member: int) -> Iterator[None]:
        """Run a member's adapter; what was active before, and whether it was trainable, is put back at the end.

        Forward *and backward* belong inside: outside, the adapter's weights do not require a gradient, and
        autograd passes them over in silence. Blocks may be nested.
        """
        adapter = self.members[member].adapter
        if adapter is None:
            yield
            return
        assert self.peft_model is not None
        tuner = self.peft_model.base_model
        layer = next(module for module in self.model.modules() if isinstance(module, PeftLoraLinear))
        assert not layer.disable_adapters, "adapters are switched off: a member cannot run inside disable_adapter()"
        before = layer.active_adapters[0]
        trainable = layer.lora_A[before].weight.requires_grad
        if before == adapter and trainable:
            yield
            return
        tuner.set_adapter(adapter)
        try:
            yield
        finally:
            tuner.set_adapter(before, inference_mode=not trainable)

    def trained(self) -> list[tuple[str, nn.Parameter]]:
        """Weights of all members that training changes, by name, whichever member is active."""
        return [named for member in range(self.num_members) for named in self.trained_by(member)]

    def trained_by(self, member: int) -> list[tuple[str, nn.Parameter]]:
        """Those of one member."""
        if self.peft_model is None:
            return list(self.model.named_parameters())
        adapter, head = self.members[member].adapter, self.members[member].head
        named = [(name, p) for name, p in self.model.named_parameters() if "lora_" in name and f".{adapter}." in name]
        return named + [(f"{MODEL_HEAD}{adapter}.{name}", p) for name, p in head.named_parameters()]

    def fingerprint(self) -> str:
        """SHA-256 of the frozen backbone; of nothing where the backbone is trained."""
        return fingerprint(self._frozen())

    def save(self, folder: Path, rendering: Rendering, origins: Sequence[float] | None = None) -> None:
        """Write what Hugging Face loads: an adapter's folder, one for each member as `member_0/` and so on, or a model.

        Each comes with the tokenizer and `kleash.json`. Hugging Face reads the score at the rightmost token that is not
        padding, so that padding must differ from the stop token behind each completion: another special token becomes
        the saved tokenizer's (and a whole model's) padding where there is one. GPT-2 has none; its saved scores are
        right here, and off by one token in Hugging Face's own class.

        Args:
            folder: made if need be.
            rendering: how the training texts became tokens.
            origins: each member's mean score, to be taken off where members are compared; 0 by default.
        """
        if self.num_members == 1:
            self._save_member(self.members[0], folder, rendering)
            return
        for index, (member, origin) in enumerate(zip(self.members, origins or [0.0] * self.num_members, strict=True)):
            self._save_member(member, folder / f"member_{index}", replace(rendering, origin=origin))
        rendering.write(folder)

    def _save_member(self, member: Member, folder: Path, rendering: Rendering) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        inner = copy.deepcopy(self.tokenizer.inner)
        inner.pad_token_id = saved_pad_id(self.tokenizer)
        if member.adapter is None:
            self.model.config.get_text_config().pad_token_id = inner.pad_token_id
            self.model.save_pretrained(folder)
        else:
            self._save_adapter(member, member.adapter, folder)
        inner.save_pretrained(folder)
        rendering.write(folder)

    def _save_adapter(self, member: Member, adapter: str, folder: Path) -> None:
        assert self.peft_model is not None
        config = copy.deepcopy(self.peft_model.peft_config[adapter])
        config.task_type, config.modules_to_save, config.inference_mode = "SEQ_CLS", ["score"], True
        config.base_model_name_or_path = str(Path(self.name).resolve()) if Path(self.name).is_dir() else self.name
        config.save_pretrained(str(folder))
        tensors: dict[str, Tensor] = dict(adapter_tensors(self.model, adapter))
        tensors |= {ADAPTER_HEAD + name: tensor for name, tensor in member.head.state_dict().items()}
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(stored, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})

    def _hidden(self, batch: TokenBatch) -> Float[Tensor, "B S H"]:
        return self.model.base_model(  # type: ignore[no-any-return]
            input_ids=batch.input_ids,
            attention_mask=None if batch.attention_mask is None else batch.attention_mask.long(),
            use_cache=False,
        ).last_hidden_state

    def _apply_head(self, hidden: Float[Tensor, "N H"], member: int) -> Float[Tensor, " N"]:
        return self.members[member].head(hidden.float()).squeeze(-1)  # type: ignore[no-any-return]

    def _frozen(self) -> list[tuple[str, nn.Parameter]]:
        if self.peft_model is None:
            return []
        return [(name, p) for name, p in self.model.base_model.named_parameters() if "lora_" not in name]


def adapter_tensors(model: nn.Module, adapter: str) -> dict[str, nn.Parameter]:
    """An adapter's weights in `model`, by the names that PEFT's files give them."""
    marker = f".{adapter}."
    return {
        f"base_model.model.{name.replace(marker, '.')}": parameter
        for name, parameter in model.named_parameters()
        if "lora_" in name and marker in name
    }


def new_head(width: int, device: torch.device, *, bias: bool = False) -> nn.Linear:
    """A float32 head of zeros: every score starts at exactly 0. No random number is drawn."""
    head: nn.Linear = nn.utils.skip_init(  # type: ignore[no-untyped-call]
        nn.Linear, width, 1, bias=bias, device=device, dtype=torch.float32
    )
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    return head


def saved_pad_id(tokenizer: Tokenizer) -> int:
    """The token that a saved model pads with: another special token than the first stop token, if there is one."""
    stop, own = tokenizer.stop_ids[0], tokenizer.inner.pad_token_id
    if own is not None and own != stop:
        return int(own)
    others = sorted(tokenizer.special_ids - set(tokenizer.stop_ids), key=lambda i: (i == tokenizer.bos_token_id, i))
    return others[0] if others else stop
