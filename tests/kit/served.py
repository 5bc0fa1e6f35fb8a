# SPDX-License-Identifier: MIT
"""served.py - ctxbank serve on models that a test makes: the server, and model files in parts. For
scripts that run in the build folder."""
import http.client
import json
import os
import re
import struct
import subprocess
import tempfile

BUILD = os.getcwd()
BIN = os.path.join(BUILD, "ctxbank")
ENV = {k: v for k, v in os.environ.items() if not k.startswith("CTXBANK_") or k == "CTXBANK_ISA"}
VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors")
TMP = tempfile.TemporaryDirectory(prefix="served-")


def path(name):
    return os.path.join(TMP.name, name)


def tiny(name, family="qwen2", *args):
    if not os.path.exists(path(name)):
        subprocess.run([os.path.join(BUILD, "tests", "kit", "make_tiny"), family, path(name),
                        *args], check=True)
    return path(name)


class Server:
    """ctxbank serve with some options; ends with the block."""

    def __init__(self, *args, model="tiny.gguf", temp="0"):
        given = ["-m", tiny(model) if model == "tiny.gguf" else path(model)] if model else []
        self.err = open(path(f"err{len(os.listdir(TMP.name))}"), "w+b")
        self.p = subprocess.Popen([BIN, "serve", *given, "--port", "0", "-t", "1", "--temp", temp,
                                   *args], stdout=subprocess.PIPE, stderr=self.err, env=ENV)
        line = self.p.stdout.readline().decode()
        found = re.search(r"listens on http://127\.0\.0\.1:(\d+)\n", line)
        assert found, f"said {line!r}, {self.said()!r}"
        self.port = int(found.group(1))

    def said(self):
        self.err.seek(0)
        return self.err.read().decode("utf-8", "replace")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.p.poll() is None:
            self.p.terminate()
        rc = self.p.wait(60)
        said = self.said()
        self.err.close()
        self.p.stdout.close()
        assert kind or rc == 0 and "ERROR: " not in said, f"exit {rc}: {said[-2000:]}"

    def ask(self, method, where, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        c.request(method, where, body)
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, r.headers["Content-Type"], data

    def get(self, where, status=200):
        got, _, data = self.ask("GET", where)
        assert got == status, (where, got, data)
        return json.loads(data)

    def post(self, where, body, status=200):
        got, _, data = self.ask("POST", where, body)
        assert got == status, (where, got, data[:600])
        return json.loads(data)

    def events(self, where, body):
        status, kind, data = self.ask("POST", where, {**body, "stream": True})
        assert status == 200 and kind == "text/event-stream", (status, kind, data)
        return [json.loads(x[6:]) for x in data.decode().split("\n") if x.startswith("data: ")]

    def tokens(self, text, **kw):
        return self.post("/tokenize", {"content": text, **kw})["tokens"]


class Gguf:
    """A model file in parts: keys with their bytes, tensors with their places"""

    def __init__(self, src=None):
        self.version, self.kv, self.tensor, self.data, self.base = 3, {}, {}, b"", 0
        if src:
            with open(src, "rb") as f:
                self.data = f.read()
            self.read(src)

    def read(self, src):
        magic, self.version, n_tensor, n_kv = struct.unpack_from("<IIQQ", self.data)
        assert magic == 0x46554747, src
        self.at = 24
        for _ in range(n_kv):
            key, start = self.text(), self.at
            self.skip(self.number("<I"))
            self.kv[key] = self.data[start:self.at]
        for _ in range(n_tensor):
            name, start = self.text(), self.at
            n = self.number("<I")
            self.at += 8 * n + 4
            self.tensor[name] = (self.data[start:self.at], self.number("<Q"))
        self.base = self.at + -self.at % 32

    def number(self, form):
        (n,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return n

    def text(self):
        n = self.number("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def skip(self, kind):
        sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
        if kind == 8:
            self.text()
        elif kind == 9:
            of, n = self.number("<I"), self.number("<Q")
            for _ in range(n):
                self.skip(of)
        else:
            self.at += sizes[kind]

    def texts(self, key):
        """A list of texts"""
        self.at, n = 0, struct.unpack_from("<Q", self.kv[key], 8)[0]
        whole, self.data = self.data, self.kv[key][16:]
        found = [self.text() for _ in range(n)]
        self.data = whole
        return found

    def put(self, key, value):
        def text(s):
            return struct.pack("<Q", len(s.encode())) + s.encode()
        self.kv[key] = (struct.pack("<I", 8) + text(value) if isinstance(value, str) else
                        struct.pack("<II", 4, value) if isinstance(value, int) else
                        struct.pack("<If", 6, value) if isinstance(value, float) else
                        struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value)))

    def save(self, name, more=()):
        """more: further tensors, (name, rows of floats) or (name, shape, floats)"""
        body = bytearray(self.data[self.base:])
        tensors = dict(self.tensor)
        for t, *rest in more:
            rows = rest[0]
            shape, x = rest if len(rest) == 2 else ([len(rows[0]), len(rows)],
                                                    [v for row in rows for v in row])
            body += b"\0" * (-len(body) % 32)
            tensors[t] = (struct.pack(f"<I{len(shape)}QI", len(shape), *shape, 0), len(body))
            body += struct.pack(f"<{len(x)}f", *x)
        out = struct.pack("<IIQQ", 0x46554747, self.version, len(tensors), len(self.kv))
        for k, v in self.kv.items():
            out += struct.pack("<Q", len(k.encode())) + k.encode() + v
        for t, (shape, offset) in tensors.items():
            out += struct.pack("<Q", len(t)) + t.encode() + shape + struct.pack("<Q", offset)
        with open(path(name), "wb") as f:
            f.write(out + b"\0" * (-len(out) % 32) + body)
        return path(name)


def gguf_with(src, name, keys):
    """A copy of a model with more keys"""
    g = Gguf(src)
    for k, v in keys.items():
        g.put(k, v)
    return g.save(name)


def versatile(src, name):
    """A copy of a tiny model that fills in the middle and ranks texts"""
    g = Gguf(src)
    pieces, merges = g.texts("tokenizer.ggml.tokens"), g.texts("tokenizer.ggml.merges")
    last = pieces.index("<|endoftext|>")
    pieces[last - 3:last] = ["ye", "yes", "no"]
    g.put("tokenizer.ggml.tokens", pieces)
    g.put("tokenizer.ggml.merges", ["y e", "ye s", "n o"] + merges[:-3])
    g.put("general.name", "Tiny Reranker")
    for i, word in enumerate(("pre", "suf", "mid", "rep", "sep")):
        g.put(f"tokenizer.ggml.fim_{word}_token_id", 40 + i)
    return g.save(name)


def draw(seed, i):
    """The generator of the recipes' weights (make_families.py)"""
    m = (1 << 64) - 1
    x = (i + 1 + (seed << 32)) * 0x9e3779b97f4a7c15 & m
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9 & m
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb & m
    x ^= x >> 31
    return (x >> 40) / 8388608.0 - 1


def recipe(family, name, kind="family"):
    """The tiny model of a family's recipe in tests/vectors"""
    with open(os.path.join(VECTORS, f"{kind}-{family}.json"), encoding="utf-8") as f:
        r = json.load(f)
    forms = {"uint32": lambda v: struct.pack("<II", 4, v),
             "bool": lambda v: struct.pack("<IB", 7, v),
             "float32": lambda v: struct.pack("<If", 6, v),
             "ints": lambda v: struct.pack(f"<IIQ{len(v)}i", 9, 5, len(v), *v),
             "uint32s": lambda v: struct.pack(f"<IIQ{len(v)}I", 9, 4, len(v), *v),
             "bools": lambda v: struct.pack(f"<IIQ{len(v)}B", 9, 7, len(v), *v)}
    g = Gguf()
    g.put("general.architecture", r["arch"])
    for key, kind, value in r["kv"]:
        if kind == "string":
            g.put(key, value)
        else:
            g.kv[key] = forms[kind](value)
    for key, value in Gguf(tiny("tiny.gguf")).kv.items():
        if key.startswith("tokenizer."):
            g.kv[key] = value
    more = [(n, [x]) for n, x in (r.get("given") or {}).items()]
    for seed, (n, shape, mean, width) in enumerate(r["tensors"], 1):
        count = 1
        for d in shape:
            count *= d
        more.append((n, shape, [mean + width * draw(seed, i) for i in range(count)]))
    return g.save(name, more)
