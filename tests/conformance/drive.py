"""Drive a scheduler through a workload, step by step. Standard library only."""

from collections import defaultdict

from tests.conformance.workload import Asked, Server, Step, Workload

MOST_IDLE_STEPS = 1_000
"""Steps without anything to run after which a scheduler is taken to be stuck."""

MOST_STEPS = 10_000
"""What is compared of a workload; in some, answers to one prompt preempt each other for ever."""


def drive(workload: Workload, server: Server) -> list[Step]:
    """Return what the scheduler decided in each step in which something ran."""
    calendar = _Calendar(workload)
    steps: list[Step] = []
    number = idle = 0
    while idle < MOST_IDLE_STEPS and len(steps) < MOST_STEPS:
        if not (calendar.arrivals or server.busy()):
            break
        for asked in calendar.arrivals.pop(number, ()):
            server.add(asked)
        for name in calendar.aborts.pop(number, ()):
            server.abort(name)
        step = server.step()
        idle = 0 if step else idle + 1
        if step:
            steps.append(step._replace(number=number))
            calendar.note_finished(step.finished, number)
        number += 1
    return steps


class _Calendar:
    """In which step each request comes, and in which its client hangs up."""

    def __init__(self, workload: Workload) -> None:
        self.arrivals: defaultdict[int, list[Asked]] = defaultdict(list)
        self.aborts: defaultdict[int, list[str]] = defaultdict(list)
        self._followers: defaultdict[str, list[Asked]] = defaultdict(list)
        for asked in workload.requests:
            if asked.parent is None:
                self._plan(asked, asked.arrival_step)
            else:
                self._followers[asked.parent].append(asked)

    def note_finished(self, names: list[str], step: int) -> None:
        """Plan the followers of the requests that ended in ``step``."""
        for name in names:
            for asked in self._followers.pop(name, ()):
                self._plan(asked, step + 1 + asked.arrival_step)

    def _plan(self, asked: Asked, step: int) -> None:
        self.arrivals[step].append(asked)
        if asked.abort_after is not None:
            self.aborts[step + 1 + asked.abort_after].append(asked.name)
