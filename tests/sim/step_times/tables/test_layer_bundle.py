"""Bundles of layer times: what is read, and what is refused with the key."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.step_times.tables.layer_bundle import read_layer_bundle
from servetwin.workloads.errors import ProfileError
from tests.support.layer_bundles import attention_us, head_us, layer_us, once_us, write_bundle


def test_a_bundle_has_the_sums_of_its_operators(tmp_path: Path) -> None:
    times = read_layer_bundle(write_bundle(tmp_path / "layers"))
    assert times.name == "Made GPU, tensor parallel 1, measured with made"
    assert times.ranks == 1
    at = times.layer.x[[0, 3, 5]]
    assert times.layer(at) == pytest.approx([1e-6 * layer_us(rows) for rows in at])
    assert times.once(at) == pytest.approx([1e-6 * once_us(rows) for rows in at])
    assert times.head(at) == pytest.approx([1e-6 * head_us(sequences) for sequences in at])
    places = [(0.0, 0.0, 8.0, 700.0), (600.0, 300.0, 0.0, 0.0), (100.0, 0.0, 30.0, 2000.0)]
    for place in places:
        rows, start, decodes, _ = place
        at_decodes = times.attention.at_decodes(decodes)
        seconds = times.attention.of_chunk(at_decodes, rows, start)
        by_context = dict(zip(times.attention.axes[3].tolist(), seconds.tolist(), strict=True))
        low, high = (1024.0, 4096.0) if place[3] > 1024 else (256.0, 1024.0)
        share = (place[3] - low) / (high - low) if place[3] else 0.0
        between = by_context[low] + share * (by_context[high] - by_context[low])
        assert between == pytest.approx(1e-6 * attention_us(*place))


def test_the_folder_of_a_degree_is_a_bundle_too(tmp_path: Path) -> None:
    write_bundle(tmp_path / "layers", ranks=2)
    assert read_layer_bundle(tmp_path / "layers" / "tp2").ranks == 2
    assert read_layer_bundle(tmp_path / "layers").ranks == 2
    with pytest.raises(ProfileError, match="no folder tp1; there is tp2"):
        read_layer_bundle(tmp_path / "layers", Layout(1))


def test_a_link_asks_for_several_ranks(tmp_path: Path) -> None:
    for ranks in (1, 2, 4):
        write_bundle(tmp_path / "layers", ranks=ranks)
    assert read_layer_bundle(tmp_path / "layers").ranks == 1
    assert read_layer_bundle(tmp_path / "layers", linked=True).ranks == 2
    assert read_layer_bundle(tmp_path / "layers", Layout(4), linked=True).ranks == 4


def test_layers_of_linear_attention_are_refused(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "layers")
    (folder / "tp1" / "linear_attention.csv").write_text("layer,prefill_tokens,n_decode,time_us\n")
    with pytest.raises(ProfileError, match=r"linear_attention\.csv: layers of linear attention"):
        read_layer_bundle(folder)


def test_skew_is_measured_apart_for_steps_with_chunks_unless_the_bundle_has_it_off(
    tmp_path: Path,
) -> None:
    times = read_layer_bundle(write_bundle(tmp_path / "skewed", decodes=0.1, mixed=0.4))
    assert times.decode_skew is not None
    assert times.mixed_skew is not None
    assert times.decode_skew.share(64) == pytest.approx(0.1)
    assert times.mixed_skew.share(2) == pytest.approx(0.4)
    assert times.mixed_skew.share(1) == 0
    meta = tmp_path / "skewed" / "meta.yaml"
    meta.write_text(meta.read_text().replace("enabled: true", "enabled: false"))
    assert read_layer_bundle(tmp_path / "skewed").decode_skew is None


def change(name: str, edit: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = next(folder.glob(f"tp1/{name}.csv*"))
        edit(pd.read_csv(path)).to_csv(path, index=False)

    return apply


def times(factor: float) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.assign(time_us=factor * frame["time_us"])


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: next(folder.glob(f"tp1/{name}.csv*")).unlink()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (remove("attention"), "no attention.csv (nor attention.csv.gz); there is dense.csv"),
        (remove("dense"), "no dense.csv"),
        (
            change("dense", lambda f: f[f["layer"] != "o_proj"]),
            "dense.csv: column 'layer': no rows of 'o_proj'; it has act_fn, down_proj",
        ),
        (change("dense", times(1e3)), "dense.csv: column 'time_us': the shortest time is 3e+03 us"),
        (change("dense", times(1e-3)), "these look like ms or seconds"),
        (change("attention", times(1e3)), "attention.csv.gz: column 'time_us'"),
        (change("per_sequence", times(1e-3)), "per_sequence.csv: column 'time_us'"),
        (
            change("attention", lambda f: f.rename(columns={"n_decode": "decodes"})),
            "attention.csv.gz: no column 'n_decode'",
        ),
        (
            change("attention", lambda f: f[f["n_decode"] == 0]),
            "column 'n_decode': no value above 0",
        ),
        (
            change("dense", lambda f: f.assign(tokens=f["tokens"].replace(16, -1))),
            "dense.csv:3: column 'tokens': '-1' is not possible",
        ),
    ],
)
def test_a_damaged_bundle_is_refused_with_its_place(
    tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    damage(write_bundle(tmp_path / "layers"))
    with pytest.raises(ProfileError) as refused:
        read_layer_bundle(tmp_path / "layers")
    assert says in str(refused.value)


def test_a_folder_without_layer_times_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no folder tp1, tp2"):
        read_layer_bundle(tmp_path)
    with pytest.raises(ProfileError, match="no such folder"):
        read_layer_bundle(tmp_path / "nowhere")


def test_newer_bundles_name_the_mean_key_length(tmp_path: Path) -> None:
    plain = read_layer_bundle(write_bundle(tmp_path / "layers"))
    change(
        "attention",
        lambda f: f.assign(
            layer="attention", decode_q_len=1, prefill_key=f["kv_prefill"] + f["prefill_chunk"] / 2
        ).drop(columns="kv_prefill"),
    )(tmp_path / "layers")
    newer = read_layer_bundle(tmp_path / "layers")
    assert (newer.attention.grid == plain.attention.grid).all()
