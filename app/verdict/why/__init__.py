"""Why a prediction differs from a measurement: part by part, and by competing hypotheses."""

from servetwin.app.verdict.why.hypotheses import Hypothesis as Hypothesis
from servetwin.app.verdict.why.hypotheses import tied as tied
from servetwin.app.verdict.why.waterfall import WHY as WHY
from servetwin.app.verdict.why.waterfall import Cause as Cause
from servetwin.app.verdict.why.waterfall import Waterfall as Waterfall
from servetwin.app.verdict.why.waterfall import explain_error as explain_error
from servetwin.app.verdict.why.waterfall import read_waterfall as read_waterfall
