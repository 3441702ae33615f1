"""What a black-box calibration found out about a server's policies, and what it could not."""

from dataclasses import dataclass, field
from typing import Any

from servetwin.policies.config import PolicyConfig

# Stands for a limit that no load reached: larger than any step or memory it is held against.
UNSEEN_TOKENS = 1 << 20
LEAST_MAX_SEQS = 256


@dataclass(slots=True)
class IdentifiedLimits:
    """Settings of ``PolicyConfig`` that were identified, and why others were not.

    ``longest`` is the longest request (prompt and output) that may be sent, in tokens. ``prompts``
    says how long prompts of text are.
    """

    longest: int
    identified: dict[str, Any] = field(default_factory=dict)
    not_identified: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    prompts: str | None = None

    def found(self, **settings: Any) -> None:
        """Record settings that are identified."""
        self.identified.update(settings)
        for name in settings:
            self.not_identified.pop(name, None)

    def unknown(self, why: str, *names: str) -> None:
        """Record why settings stay open, unless they are identified."""
        for name in names:
            if name not in self.identified:
                self.not_identified[name] = why

    def policies(self) -> PolicyConfig:
        """Return the identified policies; a limit that was never reached never binds."""
        known = self.identified
        longest = known.get("max_model_len", self.longest)
        max_seqs = known.get("max_seqs") or LEAST_MAX_SEQS
        return PolicyConfig(
            batching=known.get("batching", "chunked"),
            prefix_cache=bool(known.get("prefix_cache", False)),
            max_model_len=longest,
            max_seqs=max_seqs,
            token_budget=max(max_seqs, known.get("token_budget") or UNSEEN_TOKENS),
            kv_tokens=known.get("kv_tokens") or max_seqs * (longest + 16),
            wait_limit_s=known.get("wait_limit_s", 0.0),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what a profile keeps as ``engine["identified"]``."""
        return {
            "identified": dict(self.identified),
            "not identified": dict(self.not_identified),
            "notes": self._all_notes(),
        }

    def lines(self) -> list[str]:
        """Return lines for the console."""
        known = [f"  {name:<16}{value}" for name, value in self.identified.items()]
        open_ = [f"  {name:<16}{why}" for name, why in self.not_identified.items()]
        notes = [f"note: {note}" for note in self._all_notes()]
        return ["identified:", *known, *(["not identified:", *open_] if open_ else []), *notes]

    def _all_notes(self) -> list[str]:
        return [*self.notes, *([self.prompts] if self.prompts else [])]
