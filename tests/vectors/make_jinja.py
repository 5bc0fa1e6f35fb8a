#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_jinja.py - what the package jinja2 makes of chat templates -> jinja.json

    make_jinja.py MODEL.gguf ...

The environment is the one in which the library transformers runs chat templates: a sandbox whose
values cannot be changed, trim_blocks and lstrip_blocks, loop controls, the tag generation, its own
tojson, raise_exception and strftime_now. The clock stands still.

jinja-language.json holds the cases of the language. The templates of the families (chat/*.jinja)
are written for this test, after the formats that the models' authors describe: their marks and
their use of the language, not their words.

The templates of the models named are run too; jinja.json has their results, not the templates.
Without models, those that it has stay.

Needs: jinja2, gguf. Same input, same output.
"""

import glob
import json
import os
import re
import sys
from datetime import datetime

import gguf
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime(2025, 1, 2, 13, 4, 5)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_same")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


# Variables of the cases of the language
V = {
    "s": "Hello, World", "e": "", "n": 7, "z": 0, "f": 2.5, "t": True, "no": None,
    "u": "héllo wörld 好", "l": [3, 1, 2], "w": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": 2, "C": 3},
    "el": [], "ed": {}, "sp": "  a b \t c\n", "multi": "one\ntwo\n\nthree\r\nfour",
    "q": "it's \"x\" \\ \n\t\u0007",
    "m": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": "yo", "n": 1},
          {"role": "user", "content": "bye", "n": 2}],
    "deep": {"a": {"b": [{"c": "found"}]}}, "think": "<think>\nwhy\n</think>\n\nanswer",
}

# Conversations for the families. Their texts are not ASCII, so that a test can tell them from the
# templates.
S = {"role": "system", "content": "　Σὺ εἶ βοηθός.　"}
U1 = {"role": "user", "content": "　天気は？\u2003"}
A1 = {"role": "assistant", "content": "«Ясно»\u00a0é"}
A2 = {"role": "assistant", "content": "<think>\nидея\n</think>\n\nответ"}
U2 = {"role": "user", "content": "谢谢😀"}
CALL = {"type": "function", "id": "abcdefgh1",
        "function": {"name": "get_weather",
                     "arguments": {"city": "東京", "days": 2, "x": [1.5, None]}}}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
BOTH = {"role": "assistant", "content": "δύο", "tool_calls": [CALL, {**CALL, "id": "abcdefgh2"}]}
RESULT = {"role": "tool", "content": "晴れ \"18\" °C", "name": "get_weather",
          "tool_call_id": "abcdefgh1"}
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "καιρός", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "πόλη"}, "days": {"type": "integer"},
            "units": {"type": "string", "enum": ["C", "F"]},
            "at": {"type": "array", "items": {"type": "object", "properties": {
                "h": {"type": "number"}}}}, "z": {"type": ["string", "null"]}}}}}]
PARTS = {"role": "user", "content": [{"type": "text", "text": "　часть\u3000"}, {"type": "image"},
                                     {"type": "text", "text": "二"}]}

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

CONVERSATIONS = [{**SPECIAL, **c} for c in (
    {"messages": [U1], "add_generation_prompt": True},
    {"messages": [U1], "add_generation_prompt": False},
    {"messages": [S, U1], "add_generation_prompt": True},
    {"messages": [S, U1, A1, U2], "add_generation_prompt": True},
    {"messages": [U1, A1, U2, A1], "add_generation_prompt": False},
    {"messages": [U1, A2, U2], "add_generation_prompt": True, "enable_thinking": False},
    {"messages": [U1, A2, U2], "add_generation_prompt": True, "enable_thinking": True,
     "thinking": True, "reasoning_effort": "high"},
    {"messages": [S, U1, A2], "add_generation_prompt": False},
    {"messages": [U1, U2], "add_generation_prompt": True},
    {"messages": [U1], "tools": TOOLS, "add_generation_prompt": True},
    {"messages": [S, U1, CALLS, RESULT, A1, U2], "tools": TOOLS, "add_generation_prompt": True},
    {"messages": [U1, BOTH, RESULT, {**RESULT, "tool_call_id": "abcdefgh2"}], "tools": TOOLS,
     "add_generation_prompt": True},
    {"messages": [U1, CALLS, RESULT], "tools": TOOLS, "add_generation_prompt": True,
     "tools_in_system": True, "documents": [{"text": "один"}, {"text": "δύο"}],
     "controls": {"citations": True}},
    {"messages": [PARTS], "add_generation_prompt": True},
)]


def read(name):
    with open(name, encoding="utf-8") as f:
        return json.load(f)


def made(env, templates, template, given):
    case = {"template": template, "given": given}
    source = templates.get(template, template)
    try:
        case["want"] = env.from_string(source).render(**given)
    except Exception:  # whatever it is, it does not render
        pass
    if "object at 0x" in case.get("want", "") or "<built-in" in case.get("want", ""):
        raise SystemExit(f"not reproducible: {template}")
    return case


def main():
    env, language = environment(), []
    paths = [os.path.abspath(p) for p in sys.argv[1:]]
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    templates = {}
    for path in sorted(glob.glob("chat/*.jinja")):
        with open(path, encoding="utf-8", newline="") as f:
            templates[path[5:-6]] = f.read()
    for x in read("jinja-language.json"):
        given = {k: v for k, v in V.items() if re.search(r"\b%s\b" % k, x)}
        language.append(made(env, {}, x, given))
    families = []
    for name in templates:
        for given in CONVERSATIONS:
            families.append(made(env, templates, name, given))
    own = [] if paths else read("jinja.json")["models"]
    for path in sorted(paths):
        name = os.path.basename(path)
        field = gguf.GGUFReader(path).fields.get("tokenizer.chat_template")
        if field:
            source = {name: field.contents()}
            own += [made(env, source, name, given) for given in CONVERSATIONS]
    with open("jinja.json", "w") as f:
        f.write('{"templates": %s,\n' % json.dumps(templates, indent=0))
        parts = {"language": language, "families": families, "models": own}
        f.write(",\n".join('"%s": [\n' % part + ",\n".join(json.dumps(r) for r in rows) + "\n]"
                           for part, rows in parts.items()) + "}\n")
    failed = sum("want" not in c for c in language), sum("want" not in c for c in families)
    print(f"{len(language)} of the language, {failed[0]} fail; {len(families)} of families, "
          f"{failed[1]} refuse the conversation; {len(own)} of models")


main()
