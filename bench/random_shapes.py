# SPDX-License-Identifier: MIT
"""random_shapes - files of random weights for bench/compare, from the texts in bench/shapes."""
import contextlib
import os
import re
import subprocess
import tempfile

SHAPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes")
# gpt-oss is published with experts of MXFP4 and little else quantised
KIND = {"gpt-oss-20b-4": "Q8_0"}
SMALL_VOCABULARY, SMALL_FEED_FORWARD, SMALL_EXPERTS, SMALL_LAYERS = 2048, 2048, 16, 4


def kind_of(shape):
    return KIND.get(shape, "Q4_0")


def text_of(shape):
    with open(os.path.join(SHAPES, shape + ".txt")) as file:
        return file.read()


def small(text):
    """The shape in F32 with few tokens, layers and experts; the residual stream is as wide, and one
    layer attends at least."""
    number = lambda key: int((re.search(rf"\.{key} (\d+)", text) or [0, 0])[1])
    experts, layers = number("expert_count"), number("block_count")
    heads = re.search(r"\.attention\.head_count_kv (\d+(?:,\d+)+)$", text, re.M)
    attends = next((l for l, n in enumerate(heads[1].split(",")) if n != "0"), 0) if heads else 0
    kept = layers if number("nextn_predict_layers") else min(layers, max(SMALL_LAYERS, attends + 1))
    tokens = re.search(r"^vocabulary (\d+)", text, re.M)[1]
    forward = number("feed_forward_length")
    rules = [
        (rf"^((?:u32 \S+vocab_size|vocabulary|tensor (?:token_embd|output)\.weight .*) ){tokens}$",
         rf"\g<1>{SMALL_VOCABULARY}"),
        (rf"^((?:u32 \S+\.feed_forward_length|tensor \S+\.ffn_(?:gate|up|down)\.weight .*?) )"
         rf"{forward}\b", rf"\g<1>{SMALL_FEED_FORWARD}"),
        (r"(\.expert_count )\d+$", rf"\g<1>{SMALL_EXPERTS}"),
        (rf"^(tensor \S+(?:_exps|ffn_gate_inp|exp_probs_b)\.(?:weight|bias) .*) {experts}$",
         rf"\g<1> {SMALL_EXPERTS}"),
        (r"(\.block_count )\d+$", rf"\g<1>{kept}"),
        (r"^(tensor \S+) (?:\*|[A-Z]+\d\S*) ", r"\g<1> F32 "),
    ]
    for pattern, by in rules:
        text = re.sub(pattern, by, text, flags=re.M)
    text = re.sub(r"^(u32 \S+) (\d+(?:,\d+)+)$",  # a number for each layer
                  lambda m: m[1] + " " + ",".join(m[2].split(",")[:kept])
                  if m[2].count(",") + 1 == layers else m[0], text, flags=re.M)
    return re.sub(r"^layers (.*)$",
                  lambda m: "layers " + " ".join(str(min(int(x), kept)) for x in m[1].split()),
                  text, flags=re.M)


def write(program, text, kind, path):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as shape:
        shape.write(text)
        shape.flush()
        subprocess.run([program, shape.name, path, kind], check=True)


@contextlib.contextmanager
def file_of(program, text, kind, name, folder=None):
    """Path of a file of the shape; it stays in `folder`, and is removed where there is none."""
    with contextlib.ExitStack() as stack:
        where = folder or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(where, exist_ok=True)
        path = os.path.join(where, f"{name}-{kind}.gguf")
        if not os.path.exists(path):
            write(program, text, kind, path + ".part")
            os.rename(path + ".part", path)
        yield path
