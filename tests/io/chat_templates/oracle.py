"""Renders chat templates as transformers does, with a clock that stands still."""
import datetime
import json

import jinja2.filters
from transformers.utils import chat_template_utils

NOW = datetime.datetime(2026, 3, 7, 9, 5, 4)
# llama.cpp's templates of DeepSeek call it; neither Jinja2 nor transformers has it.
jinja2.filters.FILTERS["from_json"] = json.loads
compile_template = chat_template_utils._compile_jinja_template
templates = {}


def compiled(source):
    if source not in templates:
        templates[source] = compile_template(source)
        templates[source].globals["strftime_now"] = NOW.strftime
    return templates[source]


chat_template_utils._compile_jinja_template = compiled


def render(source, special_tokens, messages, **keywords):
    """The text, or None when the template raises; and the spans of {% generation %}."""
    try:
        chats = [chat_template_utils._normalize_chat_messages(messages)]
        texts, spans = chat_template_utils.render_jinja_template(
            chats, chat_template=source, return_assistant_tokens_mask="generation" in source, **{**special_tokens, **keywords})
        return texts[0], spans[0] if spans else []
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
