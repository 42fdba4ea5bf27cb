"""Low-rank adapters through PEFT, with one linear layer that computes base and adapter together.

PEFT owns names, files and switching; only the arithmetic is ours: the base product and the adapter's share one
output buffer and one backward, in the compute dtype, while the adapter's weights stay float32. Half the time of
PEFT's own layer on a CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear as PeftLoraLinear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import Tensor, nn

from kleash.errors import ModelError

TRAINED = "default"
STARTING = "reference"
"""Names that PEFT knows the two adapters by: the trained one, and the frozen one that a continued run starts from."""


class FusedLoraLinear(PeftLoraLinear):  # type: ignore[misc]
    """y = x W^T + b + scale (x A^T) B^T for the active adapter, or x W^T + b with adapters off.

    Dropout, DoRA and mixed adapters are not part of it: `attach` asks for none of them.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Shapes `[..., in] -> [..., out]`; gradient to x, A and B, never to the base weight."""
        if self.disable_adapters:
            return self.base_layer(x)  # type: ignore[no-any-return]
        name = self.active_adapters[0]
        base = self.base_layer
        return _FusedLora.apply(  # type: ignore[no-any-return, no-untyped-call]
            x,
            base.weight,
            base.bias,
            self.lora_A[name].weight,
            self.lora_B[name].weight,
            self.scaling[name],
        )


class _FusedLora(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        narrow_a, narrow_b = a.to(x.dtype), (b * scale).to(x.dtype)
        low = rows @ narrow_a.T
        out = rows @ weight.T if bias is None else torch.addmm(bias, rows, weight.T)
        out.addmm_(low, narrow_b.T)
        ctx.save_for_backward(rows, weight, narrow_a, narrow_b, low)
        ctx.scale, ctx.shape, ctx.wide = scale, x.shape, a.dtype
        return out.view(*x.shape[:-1], out.shape[-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, narrow_a, narrow_b, low = ctx.saved_tensors
        grad = grads[0].reshape(-1, grads[0].shape[-1])
        grad_low = grad @ narrow_b
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = (grad @ weight).addmm_(grad_low, narrow_a).view(ctx.shape)
        grad_a = (grad_low.T @ rows).to(ctx.wide) if ctx.needs_input_grad[3] else None
        grad_b = (grad.T @ low).to(ctx.wide).mul_(ctx.scale) if ctx.needs_input_grad[4] else None
        return grad_x, None, None, grad_a, grad_b, None


def attach(model: nn.Module, *, r: int, alpha: float, target_modules: str | tuple[str, ...]) -> PeftModel:
    """Add a fresh adapter: B is zero, so the model computes what it did before."""
    targets = target_modules if isinstance(target_modules, str) else list(target_modules)
    config = LoraConfig(
        r=r, lora_alpha=alpha, target_modules=targets, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM"
    )
    config._register_custom_module({nn.Linear: FusedLoraLinear})
    try:
        return _foldable(get_peft_model(model, config), f"target_modules = {target_modules!r}")
    except ModelError:
        raise
    except ValueError as error:
        raise ModelError(
            f"target_modules = {target_modules!r} matches no linear layer of this model: {error}. "
            "Use 'all-linear', or names from model.named_modules()"
        ) from error


def load(model: nn.Module, folder: str, *, frozen_copy: bool) -> PeftModel:
    """Continue the adapter in `folder`; with `frozen_copy` a second, frozen copy of it stays as the reference.

    Raises:
        ModelError: the folder holds no LoRA adapter, one with arithmetic we do not have (DoRA, trained biases,
            embeddings or heads), or one made for another base.
    """
    if not (Path(folder) / "adapter_config.json").is_file():
        raise ModelError(
            f"adapter = {folder!r}: no adapter_config.json in that folder. "
            "Give the folder that PEFT's save_pretrained wrote"
        )
    config = LoraConfig.from_pretrained(folder)
    if getattr(config, "use_dora", False) or getattr(config, "bias", "none") != "none":
        raise ModelError(f"adapter = {folder!r} uses DoRA or trained biases; only plain LoRA can be continued")
    config.lora_dropout = 0.0
    config._register_custom_module({nn.Linear: FusedLoraLinear})
    try:
        peft_model = PeftModel.from_pretrained(model, folder, adapter_name=TRAINED, is_trainable=True, config=config)
        if frozen_copy:
            peft_model.load_adapter(folder, adapter_name=STARTING, is_trainable=False)
            peft_model.set_adapter(TRAINED)
    except (RuntimeError, ValueError, KeyError) as error:
        raise ModelError(
            f"adapter = {folder!r} does not fit this model: {error}. Its base was "
            f"{config.base_model_name_or_path!r}; use that model"
        ) from error
    return _foldable(peft_model, f"adapter = {folder!r}")


def _foldable(peft_model: PeftModel, origin: str) -> PeftModel:
    """Refuse trained parts that are neither a linear layer nor below the head: they would be left out in silence."""
    causal_lm = peft_model.get_base_model()
    if isinstance(causal_lm.get_output_embeddings(), BaseTunerLayer | AuxiliaryTrainingWrapper):
        raise ModelError(
            f"{origin} trains the output layer, which policy and reference share. Leave that layer out of the adapter"
        )
    for name, module in causal_lm.named_modules():
        other = isinstance(module, BaseTunerLayer) and not isinstance(module, PeftLoraLinear)
        if other or isinstance(module, AuxiliaryTrainingWrapper):
            raise ModelError(
                f"{origin} trains {name!r} ({type(module).__name__}); only low-rank adapters of linear layers can be "
                "trained. Leave that layer out of the adapter"
            )
    return peft_model
