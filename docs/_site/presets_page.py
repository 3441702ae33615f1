"""The reference of presets: what each imitates, its source and its settings."""

from markdown_table import table

from servetwin.policies.presets import PRESETS

_INTRODUCTION = """# Presets

```bash
servetwin replay trace.jsonl --preset vllm-v1 --model llama-3-8b --gpu h100
```

Settings that are not named keep the profile's value or the default
([what the real servers do beyond](../policies/presets.md)).
"""


def presets_page() -> str:
    """Return the page as Markdown."""
    rows = [
        (
            f"`{name}`",
            preset.imitates,
            ", ".join(f"`{key}={value}`" for key, value in settings.items()),
            preset.source,
        )
        for name, preset in PRESETS.items()
        for settings in [{**preset.policies, **preset.cluster}]
    ]
    return f"{_INTRODUCTION}\n{table(('preset', 'imitates', 'settings', 'source'), rows)}"
