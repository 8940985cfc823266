#!/usr/bin/env python3
"""Writes the oracles of chat templates beside itself, with transformers 5.24.0 and Jinja2 3.1.6:

  chats.json      the chats of conversations.py
  cases.json      small templates, each of one feature, with what Jinja2 makes of them; null where it raises
  published.json  lengths and digests of what 70 published templates make of the chats; FOLDER holds the templates, which are
                  vendor/llama.cpp/models/templates of the source package llama-cpp-python 0.3.36

Run as: make_cases.py FOLDER
"""
import hashlib
import json
import pathlib
import sys

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
published = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
    source = path.open(encoding="utf8", newline="").read()
    texts = [oracle.render(source, conversations.SPECIAL_TOKENS, **keywords)[0] for _, keywords in conversations.CHATS]
    published[path.name] = ["" if text is None else digest(text) for text in texts]
write("published.json", published)
