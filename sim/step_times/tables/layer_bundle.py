"""Layer times of a GPU, in the CSV files that LLMServingSim's profiler measures through vLLM.

A bundle is a folder with ``meta.yaml`` and a folder ``tp1``, ``tp2`` ... for each degree of tensor
parallelism, whose files have microseconds of one layer on one rank. Files may be gzipped.

====================  ==========================================================================
``dense.csv``         operators that depend on the rows alone: layer, tokens
``per_sequence.csv``  head and sampler: layer, sequences
``attention.csv``     attention: prefill_chunk, kv_prefill, n_decode, kv_decode
``moe.csv``           experts: tokens, activated_experts, and ep in newer bundles
``skew.csv``          attention of unequal contexts: pc, n, t_mean_us, t_max_us, t_skew_us
====================  ==========================================================================
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.step_times.step_time import FloatArray
from servetwin.sim.step_times.tables.attention_grid import AttentionGrid
from servetwin.sim.step_times.tables.interpolate import Curve, Surface
from servetwin.sim.step_times.tables.measurements import Measurements, points, require_unit
from servetwin.workloads.errors import ProfileError
from servetwin.workloads.files import document
from servetwin.workloads.yaml_text import YamlError, load_yaml

# Batches whose longest context costs no more than this above the mean say nothing of skew.
_LEAST_GAP = 0.02


@dataclass(frozen=True, slots=True)
class ContextSkew:
    """Where attention over unequal contexts lies between two equal ones.

    A batch takes (1 - a) times as long as at its mean context, plus a times as long as at its
    longest; ``shares`` are a by ``decodes``.
    """

    decodes: FloatArray
    shares: FloatArray

    def share(self, decodes: int) -> float:
        """Return a for a number of decodes; nothing for a single one."""
        return float(np.interp(decodes, self.decodes, self.shares)) if decodes > 1 else 0.0


def fit_skew(
    decodes: FloatArray, at_mean_s: FloatArray, at_longest_s: FloatArray, skewed_s: FloatArray
) -> ContextSkew | None:
    """Return the skew of measured batches, or None where no batch says anything.

    The arguments have a value per batch: its decodes, its time, and those of equal contexts, once
    all at its mean and once all at its longest. A share is the ratio of the sums over all batches
    of as many decodes, so it preserves their total time.
    """
    telling = at_longest_s > (1 + _LEAST_GAP) * at_mean_s
    if not telling.any():
        return None
    counts, which = np.unique(decodes[telling], return_inverse=True)
    gaps_s = np.bincount(which, (at_longest_s - at_mean_s)[telling])
    excesses_s = np.bincount(which, (skewed_s - at_mean_s)[telling])
    return ContextSkew(counts, np.clip(excesses_s / gaps_s, 0.0, 1.0))


# Operators of ``dense.csv`` that run once a step, not once a layer.
_ONCE = ("embedding", "final_layernorm")
# Operators that run twice a layer: before attention, and before the feed-forward part.
_TWICE = ("layernorm",)
_NEEDED = ("layernorm", "qkv_proj", "o_proj", *_ONCE)
# Operators that a model without experts needs too.
_FEED_FORWARD = ("gate_up_proj", "down_proj")
_HEAD = ("lm_head", "sampler")
_ATTENTION = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
_SKEW_TIMES = ("t_mean_us", "t_max_us", "t_skew_us")


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Seconds on one of ``ranks`` devices.

    ``layer`` (by rows), ``attention`` and ``experts`` (by rows and experts that they reach) are per
    layer, ``once`` (by rows) and ``head`` (by sequences) per step. ``decode_skew`` is the skew of
    steps without chunks, ``mixed_skew`` of those with chunks; None where none is known.
    """

    name: str
    ranks: int
    layer: Curve
    once: Curve
    head: Curve
    attention: AttentionGrid
    experts: Surface | None = None
    expert_ranks: int = 1
    """Of how many devices one was timed: it has that part of the experts, and of the pairs."""
    decode_skew: ContextSkew | None = None
    mixed_skew: ContextSkew | None = None


def read_layer_bundle(
    folder: Path, layout: Layout | None = None, *, linked: bool = False
) -> LayerTimes:
    """Read a bundle, or one of its ``tp`` folders; ``layout`` chooses where there are several.

    Without it the lowest degree is taken, above 1 if the ranks are ``linked``. Experts that are
    whole on a device were measured in the folder ``tp1``.

    Raises ``ProfileError`` that names the file, and the line and column or the layer, of what is
    missing or wrong.
    """
    at = _rank_folder(folder, layout.tp if layout else None, linked)
    layout = layout or Layout(_ranks(at))
    meta = _meta(at.parent / "meta.yaml")
    if (linear := _file(at, "linear_attention")) is not None:
        raise ProfileError(f"{linear}: layers of linear attention are not read; only softmax ones")
    experts, expert_ranks = _experts(at, layout)
    layer, once = _dense(_table(at, "dense"), experts is not None)
    decode_skew, mixed_skew = _skews(at, meta)
    return LayerTimes(
        f"{meta.get('gpu', 'unknown GPU')}, tensor parallel {at.name[2:]}, measured with "
        f"{meta.get('model', 'an unknown model')}",
        int(at.name[2:]),
        layer,
        once,
        _sum(_by_layer(_table(at, "per_sequence"), "sequences", _HEAD)),
        _attention(_table(at, "attention")),
        experts,
        expert_ranks,
        decode_skew,
        mixed_skew,
    )


def _rank_folder(folder: Path, ranks: int | None, linked: bool) -> Path:
    if not folder.is_dir():
        raise ProfileError(f"{folder}: no such folder; give a bundle of layer times")
    folders = {_ranks(one): one for one in (folder, *folder.iterdir()) if _ranks(one)}
    if not folders:
        raise ProfileError(f"{folder}: no folder tp1, tp2 ... with layer times in it")
    if ranks is None:
        ranks = min(
            (degree for degree in folders if degree > 1 or not linked), default=min(folders)
        )
    if ranks not in folders:
        there = ", ".join(folders[known].name for known in sorted(folders))
        raise ProfileError(f"{folder}: no folder tp{ranks}; there is {there}")
    return folders[ranks]


def _ranks(folder: Path) -> int:
    """Return the degree that a folder is named for, 0 for any other folder."""
    number = folder.name.removeprefix("tp")
    named = folder.name.startswith("tp") and re.fullmatch("[0-9]{1,9}", number)
    return int(number) if named else 0


def _meta(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        meta = load_yaml(document(path))
    except (OSError, YamlError) as error:
        raise ProfileError(f"{path}: cannot be read ({error})") from error
    if not isinstance(meta, dict):
        raise ProfileError(f"{path}: not a YAML mapping, such as 'gpu: NVIDIA L40S'")
    return meta


def _file(folder: Path, name: str) -> Path | None:
    places = (folder / f"{name}.csv", folder / f"{name}.csv.gz")
    return next((place for place in places if place.exists()), None)


def _table(folder: Path, name: str) -> Measurements:
    path = _file(folder, name)
    if path is None:
        there = ", ".join(sorted(one.name for one in folder.iterdir()))
        raise ProfileError(f"{folder}: no {name}.csv (nor {name}.csv.gz); there is {there}")
    return Measurements.read(path)


def _times_s(table: Measurements) -> "pd.Series[float]":
    """Return the times of a table; raise where they are not in microseconds."""
    times_s = table.times_s("time_us", 1e-6)
    require_unit(f"{table.path}: column 'time_us'", times_s, "us")
    return times_s


def _dense(table: Measurements, has_experts: bool) -> tuple[Curve, Curve]:
    """Return the times by rows (of a layer, once a step)."""
    needed = _NEEDED if has_experts else (*_NEEDED, *_FEED_FORWARD)
    by_layer = _by_layer(table, "tokens", needed)
    repeated = {name: curve for name, curve in by_layer.items() if name not in _ONCE}
    return _sum(repeated), _sum({name: by_layer[name] for name in _ONCE})


def _by_layer(table: Measurements, axis: str, needed: Sequence[str]) -> dict[str, Curve]:
    """Return the times of every layer of a table."""
    names = table.texts("layer")
    present = sorted(set(names))
    for name in needed:
        if name not in present:
            has = ", ".join(present)
            raise ProfileError(f"{table.path}: column 'layer': no rows of {name!r}; it has {has}")
    counts, times_s = table.counts(axis, 1), _times_s(table)
    return {
        name: Curve(*points(times_s[names == name], counts[names == name]), straight=True)
        for name in present
    }


def _sum(by_layer: dict[str, Curve]) -> Curve:
    """Return the sum of times at every place where one of them was measured."""
    x = np.unique(np.concatenate([curve.x for curve in by_layer.values()]))
    total_s = sum((2 if name in _TWICE else 1) * curve(x) for name, curve in by_layer.items())
    return Curve(x, np.asarray(total_s), straight=True)


def _attention(table: Measurements) -> AttentionGrid:
    if "decode_q_len" in table:  # decodes of several positions verify drafts
        table = table.only("decode_q_len", 1)
    rows, decodes = table.counts("prefill_chunk"), table.counts("n_decode")
    start = _starts(table, rows)
    context, times_s = table.counts("kv_decode"), _times_s(table)
    for column, present in (("prefill_chunk", rows), ("n_decode", decodes)):
        if not (present > 0).any():
            raise ProfileError(f"{table.path}: column {column!r}: no value above 0 in any row")
    *places, medians_s = points(
        times_s, rows, start.where(rows > 0, 0.0), decodes, context.where(decodes > 0, 0.0)
    )
    return AttentionGrid(tuple(places), medians_s)


def _starts(table: Measurements, rows: "pd.Series[float]") -> "pd.Series[float]":
    """Return the positions before a chunk; newer bundles have its mean key length instead."""
    if "kv_prefill" in table or "prefill_key" not in table:
        return table.counts("kv_prefill")
    return (table.numbers("prefill_key") - rows / 2).clip(lower=0.0)


def _experts(at: Path, layout: Layout) -> tuple[Surface | None, int]:
    """Return the times of experts, and of how many devices they are those of one."""
    folder = at.parent / f"tp{layout.moe_tp}"
    path = _file(folder, "moe")
    if path is None:
        if _file(at.parent / "tp1", "moe"):
            raise ProfileError(
                f"{folder}: no moe.csv of experts that {layout.moe_tp} devices share; there is "
                f"tp1/moe.csv, of whole ones: --layout {replace(layout, ep=layout.stage_devices)}"
            )
        return None, 1
    table, ranks = Measurements.read(path), 1
    if "ep" in table:  # the degree of the layout, else the lowest
        degrees = table.counts("ep", 1)
        ranks = layout.ep if (degrees == layout.ep).any() else int(degrees.min())
        table = table.only("ep", ranks)
    rows, reached = table.counts("tokens", 1), table.counts("activated_experts", 1)
    return Surface(*points(_times_s(table), rows, reached)), ranks


def _skews(folder: Path, meta: dict[str, Any]) -> tuple[ContextSkew | None, ContextSkew | None]:
    """Return the skew of (steps of decodes, mixed steps); a bundle may say that it has none."""
    path, fit = _file(folder, "skew"), meta.get("skew_fit")
    if path is None or (isinstance(fit, dict) and fit.get("enabled") is False):
        return None, None
    table = Measurements.read(path)
    mixed = (table.counts("pc") > 0).to_numpy()
    decodes = table.counts("n", 1).to_numpy(float)
    times_s = [table.times_s(column, 1e-6).to_numpy(float) for column in _SKEW_TIMES]

    def skew(of: "np.ndarray[Any, np.dtype[np.bool_]]") -> ContextSkew | None:
        return fit_skew(decodes[of], *(column_s[of] for column_s in times_s))

    return skew(~mixed), skew(mixed)
