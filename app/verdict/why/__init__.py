"""Why a prediction differs from a measurement, by competing hypotheses."""

from servetwin.app.verdict.why.explanation import WHY as WHY
from servetwin.app.verdict.why.explanation import Explanation as Explanation
from servetwin.app.verdict.why.explanation import explain_error as explain_error
from servetwin.app.verdict.why.explanation import read_explanation as read_explanation
from servetwin.app.verdict.why.hypotheses import Hypothesis as Hypothesis
from servetwin.app.verdict.why.hypotheses import tied as tied
