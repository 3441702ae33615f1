"""Generated prompts as the token ids that they are."""

from servetwin.workloads.generators.prompts import prompt_text
from servetwin.workloads.request import Request


def prompt_token_ids(request: Request, vocab_size: int, salt: str = "") -> list[int]:
    return [*map(int, prompt_text(request, salt, vocab_size).split(","))]
