"""What the engine runs: a preset with random weights, or a folder with a checkpoint."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from servetwin.engine.checkpoint import tensor_files
from servetwin.engine.checkpoint.architectures import CONFIG_FILE, read_model_config
from servetwin.engine.models.model_config import PRESETS, ModelConfig, model_preset
from servetwin.engine.sampling.sampling_params import EOS_ID
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.engine.text.file_tokenizer import file_tokenizer
from servetwin.engine.text.tokenizer import Tokenizer
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from servetwin.workloads.models.keys import Keys, shortened

if TYPE_CHECKING:
    from servetwin.engine.models.weights import LoadWeights

GENERATION_FILE = "generation_config.json"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model and where it comes from; ``folder`` is that of a checkpoint (None: a preset)."""

    config: ModelConfig
    folder: Path | None = None
    eos_ids: tuple[int, ...] = (EOS_ID,)

    def policies(self) -> PolicyConfig:
        """Return the default policies, whose contexts are no longer than the model's, and which
        keep what its layers do.
        """
        usual = PolicyConfig()
        if self.config.state_space:
            usual = replace(usual, kv="grouped", kv_groups=self.config.kv_groups)
        return replace(usual, max_model_len=min(usual.max_model_len, self.config.max_model_len))

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the folder, or that of the presets."""
        return file_tokenizer(self.folder, self.eos_ids) if self.folder else ByteTokenizer()

    def stored(self, config: ModelConfig) -> dict[str, tensor_files.StoredTensor]:
        """Return where the tensors of ``config`` lie in the folder; a preset has none.

        Raises ``EngineError`` where the folder has not exactly those.
        """
        if self.folder is None:
            return {}
        if not tensor_files.has_same_tensors(config, self.config):
            raise EngineError(
                f"model {self.folder}: a technique changes its shape, and a checkpoint has no "
                "weights of another; use a preset"
            )
        stored = tensor_files.stored_tensors(self.folder)
        tensor_files.check_tensors(config, stored, str(self.folder))
        return stored

    def load_weights(self, config: ModelConfig) -> "LoadWeights | None":
        """Return what loads the weights of ``config``; None: they are drawn at random."""
        if self.folder is None:
            return None
        # torch is imported here
        from servetwin.engine.checkpoint.load_weights import CheckpointWeights

        return CheckpointWeights(config, self.stored(config))


def find_model(name: str) -> FoundModel:
    """Return the preset called ``name``, or the checkpoint in the folder of that path.

    Raises ``EngineError`` for a name that is neither, and for a model that the engine cannot
    compute; the weights are not looked at.
    """
    folder = Path(name).expanduser()
    if name in PRESETS or not (folder.is_dir() or "/" in name):
        return FoundModel(model_preset(name))
    if not folder.is_dir():
        raise EngineError(
            f"model {name}: no such folder; give one with a checkpoint, or a preset "
            f"({', '.join(PRESETS)})"
        )
    config = read_model_config(folder)
    return FoundModel(config, folder, _eos_ids(folder, config))


def _eos_ids(folder: Path, config: ModelConfig) -> tuple[int, ...]:
    """Return the ends of sequence of ``generation_config.json``, else of ``config.json``."""
    for name in (GENERATION_FILE, CONFIG_FILE):
        if not (folder / name).is_file():
            continue
        config_file = Keys.read(folder / name, EngineError)
        eos = config_file.get("eos_token_id")
        if eos is None:
            continue
        ids = eos if isinstance(eos, list) else [eos]
        for token in ids:
            if type(token) is not int or not 0 <= token < config.vocab_size:
                last, given = config.vocab_size - 1, shortened(json.dumps(token))
                raise config_file.failure(f"eos_token_id {given} is no token of 0 .. {last}")
        return tuple(ids)
    return ()
