"""The computed figures of decoding in the evidence are those of the model."""

from servetwin.sim.step_times.acceptance import Chain
from servetwin.sim.techniques.decoding import EarlyExitDecoding
from servetwin.sim.techniques.drafting import SpeculativeDecoding, TreeSpeculation
from tests.support.acceptance import mean_tokens_per_pass
from tests.support.decoding_techniques import base, gain, ideal
from tests.support.evidence import rows
from tests.support.formulas.speculation import best_drafts, plain_step_s


def test_the_gains_are_those_of_the_model() -> None:
    for sequences, *gains in rows("speculation"):
        expected = [
            gain(technique, base(), int(sequences), context_tokens)
            for technique in (SpeculativeDecoding(), TreeSpeculation())
            for context_tokens in (128, 2000)
        ]
        assert gains == [f"{value:.2f}" for value in expected]


def test_the_numbers_of_drafts_are_the_best() -> None:
    for alpha, *best in rows("best-drafts"):
        assert best == [str(best_drafts(float(alpha), share)) for share in (0.01, 0.05, 0.1, 0.2)]


def test_the_thresholds_are_those_of_the_law() -> None:
    for least, *means in rows("draft-thresholds"):
        stops = float(least) > 0
        law = Chain(0.7, 4, float(least) if stops else 0.0)
        drafts = sum(law.step_shares) if stops else 4
        assert means == [f"{mean_tokens_per_pass(law):.4f}", f"{drafts:.4f}"]


def test_the_exits_are_those_of_the_model() -> None:
    technique = EarlyExitDecoding()
    with_it = technique.apply(base()).deployment
    for sequences, read, gained in rows("early-exit"):
        count = int(sequences)
        ratio = plain_step_s(ideal(), count, 128) / plain_step_s(with_it, count, 128)
        assert (read, gained) == (f"{technique.exits.read_depth(count):.3f}", f"{ratio:.2f}")
