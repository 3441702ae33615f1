"""Schedulers as somebody else writes them: lists, one sequence at a time, no counters."""

from servetwin.policies.schedulers.fast_forward import FastForward, Plan


class Lists(FastForward):
    """Decodes first, then prompts in pieces, as ``chunked``."""

    def plan(self, now_s: float) -> Plan:
        evicts, running = False, self.running
        for seq in [seq for seq in running if seq.lockstep]:
            while seq.lockstep and not self.extend(seq):
                self.evict(running[-1])
                evicts = True
        plan = [(seq, 1) for seq in running if seq.lockstep]
        left = self.config.token_budget - len(plan)
        for seq in running:
            if left > 0 and not seq.lockstep:
                plan.append((seq, tokens := min(seq.missing_tokens, left)))
                left -= tokens
        while left > 0 and not evicts and (new := self.admit_next()):
            plan.append((new, tokens := min(new.missing_tokens, left)))
            left -= tokens
        return plan


class Counts(Lists):
    """Every fifth step leaves the oldest decode out: it depends on a count of its own."""

    steps = 0

    def plan(self, now_s: float) -> Plan:
        self.steps += 1
        plan = super().plan(now_s)
        return plan[1:] if self.steps % 5 == 0 and len(plan) > 1 else plan


class Alternates(Lists):
    """Of two or more decodes every second one pauses, in turn."""

    repeats = False
    turn = 0

    def plan(self, now_s: float) -> Plan:
        self.turn += 1
        plan = super().plan(now_s)
        due = [row for place, row in enumerate(plan) if (place + self.turn) % 2]
        return due or plan


class Doubles(Lists):
    """The first sequence is in the step twice."""

    def plan(self, now_s: float) -> Plan:
        plan = super().plan(now_s)
        return [*plan, *plan[:1]]
