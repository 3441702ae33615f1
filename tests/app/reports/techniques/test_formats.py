"""The table of number formats: sizes of a model, noise by formula, quality where published."""

from servetwin.app.reports.techniques.quality import TECHNIQUES, formats_lines, formats_report
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.step_times.roofline.formats import FORMATS, KV_FORMATS
from servetwin.sim.techniques.quantisation import WeightFormat
from servetwin.sim.techniques.registry import find_technique
from tests.support.command import refused, servetwin


def test_every_lossy_format_is_that_of_its_technique() -> None:
    assert set(TECHNIQUES) == {name for name, form in FORMATS.items() if not form.lossless}
    for name, text in TECHNIQUES.items():
        technique = find_technique(text)
        assert isinstance(technique, WeightFormat)
        assert technique.form().weight_bytes == FORMATS[name].weight_bytes


def test_entries_are_unrounded_and_of_the_model() -> None:
    report = formats_report("llama-3-8b")
    entries = {entry["name"]: entry for entry in report["formats"]}
    assert list(entries) == list(FORMATS)
    q4_k = entries["q4_k"]
    assert q4_k["weight_bytes"] == find_model("llama-3-8b").params() * 144 / 256
    assert q4_k["quality"]["basis"] == "this model"
    assert q4_k["quality"]["after"] == 6.5005
    assert entries["awq"]["quality"]["basis"] == "nearest model"
    assert entries["bf16"]["quality"]["basis"] == "by definition"
    assert entries["iq1_s"]["sqnr_db"] is None
    assert entries["iq1_s"]["most_sqnr_db"] < q4_k["sqnr_db"] < q4_k["most_sqnr_db"]
    assert [kv["name"] for kv in report["kv_formats"]] == list(KV_FORMATS)


def test_the_table_has_a_row_for_each_format_within_100_columns() -> None:
    lines = list(formats_lines(formats_report(None)))
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[2 : 2 + len(FORMATS)]] == list(FORMATS)
    (q4_0,) = [line.split() for line in lines if line.startswith("q4_0")]
    assert q4_0 == ["q4_0", "4.5", "3.790", "bf16", "none", "weights", "20.7", "27.1", "ppl",
                    "+7.5%~"]  # fmt: skip


def test_the_command_prints_it_and_names_the_nearest_model() -> None:
    done = servetwin("techniques", "formats", "--model", "llama-3-8b")
    assert done.code == 0
    assert done.out.startswith("llama-3-8b, all weights in one format")
    assert "did you mean 'llama-3-8b'" in refused("techniques", "formats", "--model", "lama-3-8b")
