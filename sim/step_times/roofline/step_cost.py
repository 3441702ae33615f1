"""Seconds of a step on a deployment: rows, and attention beside them.

The time of a step is the sum over its operators, each at its own place of the roofline, because in
a mixed batch attention and products sit on opposite sides of the ridge.
"""

from servetwin.sim.step_times.roofline.attention_cost import AttentionCost
from servetwin.sim.step_times.roofline.batch_pieces import BatchPieces
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.formats import Format
from servetwin.sim.step_times.roofline.messages import Messages
from servetwin.sim.step_times.roofline.operators import Operator, head_operator, linear_operators
from servetwin.sim.step_times.step_time import Remembered


class StepCost:
    """Seconds of the rows of a step, with ``attention`` and the ``pieces`` of its batch beside.

    Floats of rows are expectations.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.pieces = BatchPieces(deployment.parallel)
        self.attention = AttentionCost(deployment)
        self._messages = Messages(deployment)
        self._layers_s = Remembered(self._of_layers)
        self._heads_s = Remembered(self._of_head)
        self._cuts = Remembered(self._cut)
        self._launching_s = self._launches_s()

    def rows_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        """Return the seconds that depend on rows alone: products, messages, launches, overhead."""
        device_s = self._device_s(rows, logit_rows, has_prefill)
        return self.deployment.efficiency.overhead_s + self._with_streamed_weights(device_s)

    def stream_slack_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        """Return the seconds that the device waits for its weights, free for other computing."""
        if not self.deployment.offload.prefetch:
            return 0.0
        return max(0.0, self._streamed_s() - self._device_s(rows, logit_rows, has_prefill))

    def _device_s(self, rows: float, logit_rows: float, has_prefill: bool) -> float:
        parallel = self.deployment.parallel
        micro_batches, groups = self._cuts[logit_rows]
        piece = rows / micro_batches / groups, logit_rows / micro_batches / groups
        device_s = self._linear_s(*piece, has_prefill, groups)
        device_s += self._messages.layers_s(*piece, has_prefill)
        device_s += self._launching_s
        device_s *= self.pieces.stage_times(micro_batches, has_prefill) / parallel.pipeline
        if parallel.pipeline > 1:
            device_s += (parallel.pipeline - 1) * self._messages.hop_s(piece[0], has_prefill)
        return device_s

    def weighted_s(self, operator: Operator, form: Format) -> float:
        """Return the seconds of a product with weights in ``form``, or of a mere transfer.

        Only products read their bytes at the bandwidth share of the format.
        """
        flops_per_s = self.deployment.hardware.peak(form.compute) * form.compute_share
        share = form.memory_share if operator.flops else 1.0
        memory_s = operator.moved_bytes / (self.deployment.hardware.memory_bytes_per_s * share)
        return self.deployment.efficiency.seconds(operator.flops / flops_per_s, memory_s)

    def _linear_s(self, rows: float, logit_rows: float, has_prefill: bool, groups: float) -> float:
        return self._layers_s[rows, has_prefill, groups] + self._heads_s[logit_rows, has_prefill]

    def _of_head(self, piece: tuple[float, bool]) -> float:
        """Return the seconds of the head, by its rows and whether prompts are among them."""
        form = self.deployment.prefill if piece[1] else self.deployment.decode
        return self.weighted_s(head_operator(self.deployment, *piece), form)

    def _cut(self, logit_rows: float) -> tuple[float, float]:
        """Return the micro-batches of a batch, and the groups of devices that have one of each."""
        return self.pieces.micro_batches(logit_rows), self.pieces.groups(logit_rows)

    def _of_layers(self, piece: tuple[float, bool, float]) -> float:
        """Return the seconds of the layers, by rows, whether prompts are among them, and groups."""
        form = self.deployment.prefill if piece[1] else self.deployment.decode
        operators = linear_operators(self.deployment, *piece)
        return sum(self.weighted_s(operator, form) for operator in operators)

    def _launches_s(self) -> float:
        kernels = self.deployment.kernels
        per_layer = kernels.launches_per_layer * (1 if kernels.fused else 2)
        launches = self.deployment.model.layer_count * per_layer
        return launches * self.deployment.hardware.kernel_launch_s

    def _with_streamed_weights(self, device_s: float) -> float:
        """Return the seconds with the weights that come over the host link, in parallel or not.

        Attention is not hidden behind the stream.
        """
        streamed_s = self._streamed_s()
        prefetch = self.deployment.offload.prefetch
        return max(device_s, streamed_s) if prefetch else device_s + streamed_s

    def _streamed_s(self) -> float:
        offload, parallel = self.deployment.offload, self.deployment.parallel
        streamed = self.deployment.target_weight_bytes() * (1 - offload.resident_weights)
        links = parallel.devices / parallel.sequence  # sequence ranks all need all weights
        return streamed / links / self.deployment.host_bytes_per_s
