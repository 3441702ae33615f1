"""When the first token behind the reasoning of a request is out."""

from heapq import heappop, heappush, heapreplace

from servetwin.policies.batch import Batch
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.recorder import Recorder


class VisibleTokens:
    """Watches the requests of a server that reason, until their first visible token is out.

    Steps are those of the server. A run of them is cut where such a token may come, so that its
    stamp is the end of its own step.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        # A heap: the first step that may bring the token, the row of the request, its sequence.
        self._due: list[tuple[int, int, Sequence]] = []
        self._watched: set[int] = set()

    def watch(self, seq: Sequence, step: int) -> None:
        """Begin with a request whose prompt is computed, if it reasons."""
        if seq.number in self._recorder.hidden and seq.number not in self._watched:
            self._watched.add(seq.number)
            heappush(self._due, (step, seq.number, seq))

    def most_steps(self, steps: int, step: int) -> int:
        """Return how many of the next ``steps`` run before such a token may come."""
        return min(steps, max(1, self._due[0][0] - step)) if self._due else steps

    def ran(self, batch: Batch, step: int, received_s: float) -> None:
        """Record the tokens that are out after ``step``, and when clients have them."""
        for seq, _, _, ends_prompt, _ in batch.chunks:
            if ends_prompt:
                self.watch(seq, step)
        due = self._due
        while due and due[0][0] <= step:
            _, row, seq = due[0]
            missing = self._recorder.hidden[row] + 1 - seq.generated_tokens
            if missing > 0 and not seq.finished:
                rows = missing if batch.lockstep is None else batch.lockstep.rows
                heapreplace(due, (step - (-missing // rows), row, seq))
                continue
            heappop(due)
            if missing <= 0:
                self._recorder.visible_s[row] = received_s
