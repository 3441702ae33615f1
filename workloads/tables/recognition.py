"""Which column holds what: by its name and its content, or a question where these leave a doubt."""

import shlex
from collections.abc import Sequence
from statistics import fmean

from servetwin.workloads.tables import mapping
from servetwin.workloads.tables.moments import Content, is_missing, status_of
from servetwin.workloads.tables.names import (
    is_plain_time,
    meanings,
    says_arrival,
    says_tokens,
    unit_in,
)
from servetwin.workloads.tables.table import Table

_ANY = "arrival_s=COLUMN,prompt_tokens=COLUMN,output_tokens=COLUMN"
_SHOWN_NAMES = 24
_SHOWN_CHARACTERS = 40
_SHOWN_STATES = 3
# Names of a column that is one of states only where all of its cells are.
_UNSURE_STATES = frozenset(("code", "result", "ok", "state"))
# Whole numbers up to here are rather seconds than milliseconds.
_WHOLE_SECONDS = 100_000


class Recognition:
    """The certain ``columns`` of a table.

    ``questions`` are on the others, ``asides`` on columns that are not needed.
    """

    def __init__(self, table: Table) -> None:
        self.names = table.names
        self.columns: dict[str, str] = {}
        self.questions: list[str] = []
        self.asides: list[str] = []
        self._guesses: dict[str, str] = {}
        self._contents = {n: Content.of(table.column(n), table.comma) for n in table.names if n}
        self._candidates: dict[str, list[str]] = {}
        for name, content in self._contents.items():
            for quantity in meanings(name):
                if _fits(quantity, name, content):
                    self._candidates.setdefault(quantity, []).append(name)
                    break
        self._arrival()
        self._lengths("prompt_tokens", "prompt")
        self._lengths("output_tokens", "answer")
        self._states(table)
        self._durations()
        self._stamps()
        labels = ("request_id", "session_id", "parent_ids", "model", "tenant")
        for quantity in ("error", *labels, "cached_tokens"):
            self._only(quantity)
        self._prefix()

    @property
    def proposed(self) -> dict[str, str]:
        """The mapping with the likeliest answers."""
        proposed = {**self.columns, **self._guesses}
        order = {names[0]: at for at, names in enumerate(mapping.NEEDED)}
        return dict(sorted(proposed.items(), key=lambda item: _place(item[0], order)))

    @property
    def is_certain(self) -> bool:
        """Whether nothing has to be asked."""
        return not self.questions

    def unused(self, columns: dict[str, str]) -> list[str]:
        """Return the columns that a mapping leaves out."""
        return [name for name in self.names if name and name not in columns.values()]

    def message(self) -> str:
        """Return what is there, what is needed, and the option that would do, in one line."""
        names = [_shown(name) for name in self.names[:_SHOWN_NAMES]]
        more = len(self.names) - len(names)
        listed = ", ".join(names) + (f" and {more} more" if more else "")
        would_do = not mapping.missing_of(self.proposed)
        columns = mapping.mapping_text(self.proposed) if would_do else _ANY
        return (
            f"{'; '.join(self.questions)} (needed are {', '.join(mapping.WORDS.values())}; "
            f"the columns are {listed}): give {mapping.OPTION} {shlex.quote(columns)}"
            f"{', if that is what they hold' if would_do else ''}"
        )

    def _arrival(self) -> None:
        name, question = self._arrival_column()
        if name is not None:
            form, doubt = self._form_of_stamps(name)
            question = question or doubt
            known = self._guesses if question else self.columns
            known[f"arrival_{form}" if form else "arrival"] = name
        if question:
            self.questions.append(question)

    def _arrival_column(self) -> tuple[str | None, str]:
        """Return the likeliest column, and what is in doubt of it."""
        named = self._candidates.get("arrival", [])
        named = [name for name in named if says_arrival(name)] or named
        sure = [n for n in named if not (is_plain_time(n) and self._contents[n].are_numbers)]
        if sure:
            doubt = f"when did a request arrive: {_either(sure)}?" if len(sure) > 1 else ""
            return sure[0], doubt
        if named:
            return named[0], f"{_either(named)}: an arrival or a duration, in s or ms?"
        left = {name: c for name, c in self._contents.items() if not meanings(name)}
        stamps = [name for name, content in left.items() if content.are_stamps]
        numbers = [name for name, content in left.items() if content.are_numbers]
        return next(iter([*stamps, *numbers]), None), "no column is clearly the arrival"

    def _form_of_stamps(self, name: str) -> tuple[str, str]:
        """Return the likeliest unit or order of dates, and what is in doubt of it."""
        content, unit = self._contents[name], unit_in(name)
        if content.is_iso:
            return "", ""
        if content.is_dated:
            doubt = "day or month first" if content.orders else "a date in no order that all have"
            question = f"{_shown(name)}: {doubt}, as in {content.cells[0]!r}?"
            return next(iter(content.orders), "dmy"), "" if len(content.orders) == 1 else question
        if content.epoch:
            wrong = f"{_shown(name)}: {content.cells[0]} are no {unit} since 1970"
            return content.epoch, "" if unit in (None, content.epoch) else wrong
        return (
            (unit, "") if unit else (_likely_unit(content.numbers), f"{_shown(name)}: in s or ms?")
        )

    def _lengths(self, tokens: str, text: str) -> None:
        counted, texts = self._candidates.get(tokens, []), self._candidates.get(text, [])
        what = mapping.WORDS[tokens].rpartition(" ")[2]
        if len(counted) > 1 or (not counted and len(texts) > 1):
            several = counted or texts
            self.questions.append(f"which is the {what}: {_either(several)}?")
            self._guesses[tokens if counted else text] = several[0]
            return
        if counted:
            self.columns[tokens] = counted[0]
        if len(texts) == 1:
            self.columns[text] = texts[0]
        if not counted and not texts:
            self.questions.append(f"no column is clearly the {what}")
            taken = {*self.columns.values(), *self._guesses.values()}
            left = [n for n, c in self._contents.items() if c.are_counts and n not in taken]
            unknown = [n for n in left if not meanings(n)]
            if unknown:
                self._guesses[tokens] = unknown[0]

    def _states(self, table: Table) -> None:
        named = self._candidates.get("status", [])
        sure = [n for n in named if n.lower() not in _UNSURE_STATES]
        clear = [n for n in named if not self._contents[n].unclear_states]
        chosen = [n for n in sure if n in clear] or clear
        doubted = [n for n in sure if chosen and _fails_beside(table, n, chosen[0])]
        if doubted:
            self.questions.append(f"which says what failed: {_either([*doubted, chosen[0]])}?")
            self._guesses["status"] = doubted[0]
        elif chosen:
            self.columns["status"] = chosen[0]
        elif sure:
            states = ", ".join(map(repr, self._contents[sure[0]].unclear_states[:_SHOWN_STATES]))
            self.questions.append(f"{_shown(sure[0])}: is {states} a failure?")
        else:
            self._codes()

    def _codes(self) -> None:
        """Ask whether codes in a column without a telling name are states of HTTP."""
        for name, content in self._contents.items():
            failures = [cell for cell in content.cells if status_of(cell) is False]
            if content.are_codes and failures and not meanings(name):
                self.questions.append(f"{_shown(name)}: are {failures[0]} and 200 states of HTTP?")
                self._guesses["status"] = name
                return

    def _durations(self) -> None:
        for quantity in mapping.DURATIONS:
            named = self._candidates.get(quantity, [])
            named = [n for n in named if n not in (*self.columns.values(), *self._guesses.values())]
            units = [unit_in(name) for name in named]
            if len(named) == 1 and units[0]:
                self.columns[f"{quantity}_{units[0]}"] = named[0]
            elif len(named) == 1:
                self.asides.append(f"{quantity}_s={named[0]} or {quantity}_ms={named[0]}")
        self._drop_impossible()

    def _drop_impossible(self) -> None:
        """Leave durations out whose first token comes after the last: a unit must be wrong."""
        keys = {q: k for k in self.columns for q in ("ttft", "e2e") if k.startswith(f"{q}_")}
        if len(keys) < 2:
            return
        mean_s = {
            q: fmean(self._contents[self.columns[k]].numbers) * mapping.UNITS_S[mapping.form_of(k)]
            for q, k in keys.items()
        }
        if mean_s["ttft"] > mean_s["e2e"]:
            both = [self.columns.pop(keys[q]) for q in ("ttft", "e2e")]
            self.asides.append(f"{_either(both)}: first tokens after the last ones")

    def _stamps(self) -> None:
        key = next((k for k in self.columns if k.startswith("arrival")), None)
        if key is None:
            return
        arrival = self.columns[key]
        form = key.removeprefix("arrival")
        for quantity, duration in (("first_token", "ttft"), ("last_token", "e2e")):
            named = [n for n in self._candidates.get(quantity, []) if n != arrival]
            measured = any(k.startswith(f"{duration}_") for k in self.columns)
            if len(named) == 1 and not measured:
                content, arrivals = self._contents[named[0]], self._contents[arrival]
                if (content.is_iso, content.is_dated, content.epoch) == (
                    arrivals.is_iso, arrivals.is_dated, arrivals.epoch,
                ) and content.are_stamps:  # fmt: skip
                    self.columns[f"{quantity}{form}"] = named[0]

    def _only(self, quantity: str) -> None:
        named = self._candidates.get(quantity, [])
        if len(named) == 1 and named[0] not in self.columns.values():
            self.columns[quantity] = named[0]

    def _prefix(self) -> None:
        self._only("prefix_id")
        self._only("prefix_tokens")
        if "prefix_id" in self.columns and "prefix_tokens" not in self.columns:
            name = self.columns.pop("prefix_id")
            self.asides.append(f"{_shown(name)}: how many tokens are shared, prefix_tokens=COLUMN?")
        elif "prefix_tokens" in self.columns and "prefix_id" not in self.columns:
            del self.columns["prefix_tokens"]


def _fails_beside(table: Table, name: str, chosen: str) -> bool:
    """Return whether a row may have failed by one column that was answered by the chosen one.

    What ends an answer has many words.
    """
    worked = {True, None} if "reason" in name.lower() else {True}
    pairs = zip(table.column(chosen), table.column(name), strict=True)
    return any(
        status_of(ours) and not is_missing(theirs) and status_of(theirs) not in worked
        for ours, theirs in pairs
    )


def _fits(quantity: str, name: str, content: Content) -> bool:
    """Return whether the content of a column can be what its name says."""
    if not content.cells:
        return False
    if quantity in mapping.COUNTS:
        return content.are_whole if says_tokens(name) else content.are_counts
    if quantity == "arrival":
        return content.are_stamps or content.are_numbers
    if quantity in mapping.STAMPS:
        return content.are_stamps
    if quantity in mapping.DURATIONS:
        return content.are_numbers and "arrival" not in meanings(name)
    if quantity in ("prompt", "answer"):
        return content.are_texts
    return True


def _likely_unit(numbers: Sequence[float]) -> str:
    whole = all(number == int(number) for number in numbers)
    return "ms" if whole and numbers and max(numbers) > _WHOLE_SECONDS else "s"


def _place(key: str, order: dict[str, int]) -> int:
    return next((at for name, at in order.items() if key.startswith(name)), len(order))


def _either(names: Sequence[str]) -> str:
    return " or ".join(map(_shown, names))


def _shown(name: str) -> str:
    return name if len(name) <= _SHOWN_CHARACTERS else f"{name[: _SHOWN_CHARACTERS - 3]}..."
