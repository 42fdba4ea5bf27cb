"""The prompts of a run, whatever its data are: for looking at a finished run."""

from __future__ import annotations

from collections.abc import Sequence

from kleash.config.schema import RunConfig
from kleash.data.render import RenderedPrompt
from kleash.errors import DataError
from kleash.models.tokenizer import Tokenizer
from kleash.training import imitation, preference, session


def prompts_to_measure(config: RunConfig, tokenizer: Tokenizer) -> Sequence[RenderedPrompt]:
    """Held-out prompts, or the training ones where none are held out.

    Raises:
        DataError: the data cannot be read any more, or have no prompts.
    """
    length, seed = config.rollout.max_completion_length, config.training.seed
    found: Sequence[RenderedPrompt]
    if config.prompts is not None:
        data = session.load_data(config.prompts, tokenizer, max_completion_length=length, seed=seed)
        found = data.held_out or data.train
    elif config.comparisons is not None:
        pairs = preference.load_data(config.comparisons, tokenizer, seed=seed)
        found = [row.prompt for row in pairs.held_out or pairs.train]
    else:
        assert config.demonstrations is not None, "every algorithm has one of these tables"
        found = imitation.load_data(config.demonstrations, tokenizer, max_completion_length=length, seed=seed).prompts
    if not found:
        raise DataError("the run's demonstrations have no prompts to sample on. Export it without --merge")
    return found
