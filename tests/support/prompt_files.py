"""Small files of real prompts, one of each form."""

import json
from pathlib import Path
from typing import Any

QUESTIONS = [
    "Why does a queue grow without limit when the load nears capacity?",
    'Say "hello, world" in three languages.\n\nOne a line.',
    "Wie lang ist die längste Warteschlange der Welt? 東京?",
]
ANSWERS = ["Because there is no slack left.", "Hello!\nHallo!\nHola!", "Sehr lang."]
TENANTS = ["red", "blue", "green"]


def sharegpt(folder: Path, indent: int | None = None) -> Path:
    records = [
        {
            "id": f"c{index}",
            "conversations": [
                {"from": "human", "value": question},
                {"from": "gpt", "value": answer},
                {"from": "human", "value": "Thanks."},
            ],
            "tenant": tenant,
        }
        for index, (question, answer, tenant) in enumerate(
            zip(QUESTIONS, ANSWERS, TENANTS, strict=True)
        )
    ]
    return written(folder / "sharegpt.json", json.dumps(records, indent=indent))


def chats(folder: Path) -> Path:
    records = [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": question}]},
            ],
            "max_tokens": 5 + index,
            "tenant": TENANTS[index],
        }
        for index, question in enumerate(QUESTIONS)
    ]
    return written(folder / "chats.jsonl", lines(*records))


def table(folder: Path) -> Path:
    quoted = ['"' + question.replace('"', '""') + '"' for question in QUESTIONS]
    rows = [f"{TENANTS[index]},{text},{5 + index}" for index, text in enumerate(quoted)]
    return written(folder / "prompts.csv", "\n".join(["tenant,prompt,output_tokens", *rows, ""]))


def prompt_lines(folder: Path) -> Path:
    said = zip(QUESTIONS, TENANTS, strict=True)
    records = [{"prompt": question, "tenant": tenant} for question, tenant in said]
    return written(folder / "prompts.jsonl", lines(*records))


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
