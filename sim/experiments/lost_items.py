"""Items whose process was killed whenever they were computed."""

from collections.abc import Callable, Iterable

from servetwin.workloads.errors import ServetwinError

TRIES = 3
"""How often an item is begun whose process is killed; processes are also killed by chance."""
Called = Callable[[int], str]
"""Returns what the item at a place is called."""
_MOST_NAMED = 3


class LostItems(ServetwinError):
    """The processes of some items were killed in every try; all other items have their results."""

    exit_code = 1

    def __init__(self, places: Iterable[int], called: Called) -> None:
        self.places = sorted(places)
        names = [called(place) for place in self.places[:_MOST_NAMED]]
        if more := len(self.places) - len(names):
            names.append(f"{more} more")
        super().__init__(
            f"{'; '.join(names)}: the process was killed in each of {TRIES} tries, perhaps for "
            "lack of memory"
        )


def numbered(place: int) -> str:
    """Return what an item without a name is called."""
    return f"item {place + 1}"
