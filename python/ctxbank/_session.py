# SPDX-License-Identifier: MIT
"""_session - one timeline: tokens, context bank, policy."""
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from ._errors import Error, check, text
from ._library import ffi, lib
from ._model import Model
from ._params import as_dict, filled
from ._sampler import Sampler


def _numbers(pointer, n: int, kind: str):
    """A copy of n numbers, float32 or int32: a numpy array, or, without numpy, a list"""
    try:
        import numpy  # pylint: disable=import-outside-toplevel
    except ImportError:
        ctype = {"float32": "float *", "int32": "int32_t *"}[kind]
        return list(ffi.unpack(ffi.cast(ctype, pointer), n)) if n else []
    return numpy.frombuffer(ffi.buffer(pointer, 4 * n), dtype=kind).copy()


def _until(stop: Sequence[str], pieces: Iterator[str]) -> Iterator[str]:
    """The pieces up to the first of the texts `stop`. What may still become one of them waits."""
    held = ""
    for piece in pieces:
        held += piece
        ends = [held.find(s) for s in stop if s in held]
        if ends:
            held = held[:min(ends)]
            break
        wait = max((k for s in stop for k in range(1, len(s)) if held.endswith(s[:k])), default=0)
        out, held = held[:len(held) - wait], held[len(held) - wait:]
        if out:
            yield out
    if held:
        yield held


class Session:
    """A timeline on a model. Arguments are the fields of struct cb_session_params: n_ctx, policy
    ("sieve:budget=1024"), prefill, type_k, type_v, ... Use it as a context manager, or close()."""

    def __init__(self, model: Model, **params: Any):
        keep: list = []
        p = filled("struct cb_session_params", lib.cb_session_defaults(), params, keep)
        out = ffi.new("cb_session **")
        check(lib.cb_session_open(model.handle, p, out))
        self._adopt(model, out[0])

    def _adopt(self, model: Model, session) -> None:
        self.model, self._session = model, session
        self._fed = 0 < lib.cb_session_len(session)  # since the last cut: there are logits
        model._sessions += 1

    @classmethod
    def _of(cls, model: Model, session) -> "Session":
        made = cls.__new__(cls)
        made._adopt(model, session)
        return made

    @classmethod
    def open(cls, model: Model, path: str, n_ctx: int = 0,
             policy: Optional[str] = None) -> "Session":
        """The session that save() wrote to the file. n_ctx: its capacity; 0 = as saved. policy:
        None = as saved; policies that drop nothing open each other's files."""
        out = ffi.new("cb_session **")
        spec = ffi.NULL if policy is None else ffi.new("char[]", policy.encode())
        check(lib.cb_session_load_as(model.handle, path.encode(), n_ctx, spec, out))
        return cls._of(model, out[0])

    def close(self) -> None:
        """Frees the session. A second call does nothing."""
        session, self._session = self._session, None
        if session:
            lib.cb_session_close(session)
            self.model._sessions -= 1

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Tokens in the timeline, dropped ones included"""
        return lib.cb_session_len(self.handle)

    @property
    def handle(self):
        """The library's cb_session *"""
        if not self._session:
            raise Error(lib.CB_EARG, "session: it is closed")
        return self._session

    # ---- feeding ----

    def prefill(self, tokens: Sequence[int],
                progress: Optional[Callable[[int, int], Optional[bool]]] = None) -> None:
        """Appends tokens as a prompt. progress(done, total) may return True to stop: Canceled."""
        how = ffi.new("struct cb_prefill *")
        if progress:
            callback = ffi.callback("int(void *, int64_t, int64_t)",
                                    lambda _, done, total: bool(progress(done, total)),
                                    error=1)
            how.progress = callback
        check(lib.cb_session_prefill(self.handle, ffi.new("int32_t[]", list(tokens)), len(tokens),
                                     how))
        self._fed = True

    def decode(self, token: int) -> None:
        """Appends one token."""
        check(lib.cb_session_decode(self.handle, token))
        self._fed = True

    @property
    def logits(self):
        """logits[n_vocab] that follow the last token: a numpy array, or a list without numpy"""
        return _numbers(self._logits(), self.model.n_vocab, "float32")

    def _logits(self):
        if not self._fed:
            raise Error(lib.CB_EARG, "session: no logits before the next feed")
        return lib.cb_session_logits(self.handle)

    def generate(self, n: int = 256, *, sampler: Optional[Sampler] = None,
                 stop: Sequence[str] = (), **sampling: Any) -> Iterator[str]:
        """Generates up to n tokens after a prompt and yields their text as it comes, in whole
        characters. The answer ends before a token that ends the turn, before one of the texts
        `stop`, and where the context is full. sampling: arguments of a Sampler."""
        draw = sampler or Sampler(self.model, **sampling)
        check(lib.cb_session_want_top(self.handle, draw.top))
        detokenizer = ffi.new("cb_detokenizer **")
        check(lib.cb_detokenizer_new(self.model.handle, 0, detokenizer))
        try:
            yield from _until(stop, self._pieces(n, draw, detokenizer[0]))
        finally:
            lib.cb_detokenizer_free(detokenizer[0])

    def _pieces(self, n: int, draw: Sampler, detokenizer) -> Iterator[str]:
        """The text of up to n tokens, a piece a token"""
        piece, size = ffi.new("const char **"), ffi.new("size_t *")
        capacity = lib.cb_session_n_ctx(self.handle)
        for _ in range(n):
            token = check(lib.cb_sampler_pick(draw.handle, self._logits()))
            if self.model.is_end(token) or len(self) >= capacity:
                break
            lib.cb_sampler_accept(draw.handle, token)
            self.decode(token)
            check(lib.cb_detokenizer_push(detokenizer, token, piece, size))
            yield ffi.buffer(piece[0], size[0])[:].decode()
        lib.cb_detokenizer_end(detokenizer, piece, size)
        yield ffi.buffer(piece[0], size[0])[:].decode()

    def embed(self, tokens: Sequence[int], *, pooling: int = lib.CB_POOL_MODEL,
              normalize: bool = True):
        """The embedding of tokens, [n_embd]. The session is cleared first."""
        self._fed = False
        n = self.model.info["n_embd"]
        out = ffi.new("float[]", n)
        how = ffi.new("struct cb_embedding *", {"pooling": pooling, "normalize": normalize})
        check(lib.cb_session_embed(self.handle, ffi.new("int32_t[]", list(tokens)), len(tokens),
                                   how, out))
        return _numbers(out, n, "float32")

    # ---- timelines ----

    @property
    def tokens(self) -> List[int]:
        """Ids of the tokens in the timeline, dropped ones included"""
        ids = lib.cb_session_tokens(self.handle)
        return list(ffi.unpack(ids, len(self))) if ids and len(self) else []

    def fork(self) -> "Session":
        """A copy that continues independently, to the bit as this one would"""
        out = ffi.new("cb_session **")
        check(lib.cb_session_fork(self.handle, out))
        made = self._of(self.model, out[0])
        made._fed = self._fed
        return made

    def cut(self, n: int) -> None:
        """Keeps the first n tokens. Unsupported: the policy has dropped or scored tokens."""
        check(lib.cb_session_truncate(self.handle, n))
        self._fed = False

    def clear(self) -> None:
        """Back to an empty timeline"""
        self._fed = False
        lib.cb_session_clear(self.handle)

    def save(self, path: str) -> None:
        """Writes the session to a file that open() reads, also in another process."""
        check(lib.cb_session_save(self.handle, path.encode()))

    # ---- what the policy kept ----

    def kept(self, layer: int) -> list:
        """Positions of the tokens that a layer holds, ascending: a numpy array of int32, or a list
        without numpy, for each of its KV heads. [] for a layer without keys"""
        heads: list = []
        there = 0 <= layer < self.model.info["n_layer"]
        while True:
            n = lib.cb_session_kept(self.handle, layer, len(heads), ffi.NULL, 0)
            if n == lib.CB_EARG and there:
                return heads  # that was the last head
            out = ffi.new("int32_t[]", max(1, check(n)))
            check(lib.cb_session_kept(self.handle, layer, len(heads), out, n))
            heads.append(_numbers(out, n, "int32"))

    # ---- memory ----

    @property
    def memory(self) -> Dict[str, Any]:
        """struct cb_memory now: kv_bytes, kv_read_bytes_per_token, kept_min, kept_max, ..."""
        out = ffi.new("struct cb_memory *")
        lib.cb_session_memory(self.handle, out)
        return as_dict(out[0])

    def plan(self, n_prompt: int, n_gen: int) -> Dict[str, Any]:
        """The memory that a prompt and an answer of these lengths will need"""
        out = ffi.new("struct cb_memory *")
        check(lib.cb_session_plan(self.handle, n_prompt, n_gen, out))
        return as_dict(out[0])

    @property
    def note(self) -> str:
        """What the user should know about the policy; "" for nothing"""
        return text(lib.cb_session_note(self.handle))


def decode_batch(sessions: Sequence[Session], tokens: Sequence[int]) -> None:
    """Appends tokens[i] to sessions[i], different sessions of one model; the weights are read
    once."""
    if len(sessions) != len(tokens):
        raise TypeError("a token for each session")
    check(lib.cb_decode_batch(ffi.new("cb_session *[]", [s.handle for s in sessions]),
                              ffi.new("int32_t[]", list(tokens)), len(tokens)))
    for session in sessions:
        session._fed = True
