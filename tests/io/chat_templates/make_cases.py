#!/usr/bin/env python3
"""Writes the oracles of chat templates beside itself, with transformers 5.24.0 and Jinja2 3.1.6:

  chats.json      the chats of conversations.py
  cases.json      small templates, each of one feature, with what Jinja2 makes of them; null where it raises
  published.json  lengths and digests of what 70 published templates and that of SmolLM2 make of the chats

Run as: make_cases.py MODELS, the folder where scripts/fetch_models.sh has put chat-templates and smollm2-135m-instruct; it needs
the package gguf, too.
"""
import hashlib
import json
import pathlib
import sys

import gguf

import conversations
import oracle
from feature_templates import FEATURES, VARIABLES

here = pathlib.Path(__file__).parent


def write(name, value):
    (here / name).write_text(json.dumps(value, ensure_ascii=False, indent=None if name == "chats.json" else 0) + "\n")


def digest(text):
    data = text.encode()
    return f"{len(data)} {hashlib.blake2b(data, digest_size=8).hexdigest()}"


write("chats.json", [[name, {**keywords}] for name, keywords in conversations.CHATS])
cases = []
for source in FEATURES:
    text, spans = oracle.render(source, conversations.SPECIAL_TOKENS, **VARIABLES)
    # Spans count characters; the file has bytes.
    generation = [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in spans if begin < end] if text is not None else []
    cases.append([source, text, generation])
write("cases.json", {"variables": VARIABLES, "cases": cases})
models = pathlib.Path(sys.argv[1])
sources = {path.name: path.open(encoding="utf8", newline="").read() for path in sorted((models / "chat-templates").glob("*.jinja"))}
smollm2 = gguf.GGUFReader(models / "smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf")
sources["smollm2-135m-instruct"] = smollm2.fields["tokenizer.chat_template"].contents()
published = {}
for name, source in sources.items():
    texts = [oracle.render(source, conversations.SPECIAL_TOKENS, **keywords)[0] for _, keywords in conversations.CHATS]
    published[name] = ["" if text is None else digest(text) for text in texts]
write("published.json", published)
