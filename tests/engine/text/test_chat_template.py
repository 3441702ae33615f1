"""Chat templates: what they see, what they may do, and how they refuse."""

from datetime import datetime
from typing import Any

import pytest

from servetwin.engine.text.chat_template import ChatTemplate, plain_chat
from servetwin.engine.text.tokenizer import Chat, ChatError
from servetwin.workloads.errors import EngineError

USER = {"role": "user", "content": "hi"}


def render(source: str, *messages: dict[str, Any], **more: Any) -> str:
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}, "file")
    return template.render(Chat(messages or (USER,), **more))


def test_a_template_sees_messages_special_tokens_and_that_the_assistant_is_next() -> None:
    source = """{{ bos_token }}
{%- for message in messages %}
    {{ message['role'] }}={{ message.content }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}assistant={% endif %}"""
    answer = {"role": "assistant", "content": "ho"}
    assert render(source, USER, answer) == "<s>    user=hi</s>\n    assistant=ho</s>\nassistant="


def test_tools_and_variables_reach_the_template() -> None:
    source = "{{ tools | tojson }} {{ enable_thinking }}"
    tools = [{"type": "function", "function": {"name": "größe<>"}}]
    found = render(source, tools=tools, variables={"enable_thinking": False})
    assert found == '[{"type": "function", "function": {"name": "größe<>"}}] False'
    assert render("{{ tools is none }}", tools=[]) == "True"


def test_the_arguments_of_calls_are_objects_for_a_template_to_dump() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    source = "{{ messages[0].tool_calls[0].function.arguments | tojson(indent=1) }}"
    assert render(source, said) == '{\n "x": 1\n}'
    call["function"] = {"name": "f", "arguments": "no JSON"}
    assert render(source, said) == '"no JSON"'


def test_functions_and_tags_that_transformers_gives_templates() -> None:
    assert render("{{ strftime_now('%Y') }}") == str(datetime.now().year)
    assert render("{% generation %}{{ messages[0].content }}{% endgeneration %}!") == "hi!"
    assert (
        render("{% for m in [1, 2, 3] %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}")
        == "1"
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must\nalternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", "can only concatenate"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "is unsafe"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
    ],
)
def test_what_a_template_may_not_do_is_the_clients_error(source: str, reason: str) -> None:
    with pytest.raises(ChatError, match=rf"^the model's chat template refuses them: .*{reason}"):
        render(source)


def test_what_is_no_template_is_refused_with_file_and_line() -> None:
    with pytest.raises(EngineError, match=r"^file: line 2 is no jinja2: "):
        ChatTemplate("\n{% if %}", {}, "file")


def test_without_a_template_lines_begin_with_the_role() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    assert plain_chat(Chat([USER, call])) == 'user: hi\nassistant: [{"id": "1"}]\nassistant:'
