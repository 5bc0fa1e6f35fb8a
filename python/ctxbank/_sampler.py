# SPDX-License-Identifier: MIT
"""_sampler - how the next token is drawn, and grammars that bound it."""
from typing import Any, Optional

from ._errors import check
from ._library import ffi, lib
from ._model import Model
from ._params import filled


class Grammar:
    """What a generated text must look like (man 7 ctxbank-grammar): one of gbnf=, json_schema= or
    regex=, each a text. Raises ArgumentError with the place of a fault."""

    def __init__(self, *, gbnf: Optional[str] = None, json_schema: Optional[str] = None,
                 regex: Optional[str] = None):
        given = [(lib.cb_grammar_new_gbnf, gbnf), (lib.cb_grammar_new_json_schema, json_schema),
                 (lib.cb_grammar_new_regex, regex)]
        given = [(make, value) for make, value in given if value is not None]
        if len(given) != 1:
            raise TypeError("one of gbnf, json_schema and regex")
        out = ffi.new("cb_grammar **")
        check(given[0][0](given[0][1].encode(), out))
        self.handle = ffi.gc(out[0], lib.cb_grammar_free)


class Sampler:
    """Draws tokens. Arguments are the fields of struct cb_sampler_params (man 3 ctxbank): temp (0:
    the likeliest token), top_k, top_p, min_p, seed, ...; the library's defaults elsewhere."""

    def __init__(self, model: Model, *, grammar: Optional[Grammar] = None, **params: Any):
        self._keep: list = [grammar, model]
        p = filled("struct cb_sampler_params", lib.cb_sampler_defaults(), params, self._keep)
        out = ffi.new("cb_sampler **")
        check(lib.cb_sampler_new(p, model.n_vocab, out))
        self.handle = ffi.gc(out[0], lib.cb_sampler_free)
        # how many of the largest logits must be exact; 0: all
        self.top = 0 if grammar else lib.cb_sampler_top(p)
        if grammar:
            check(lib.cb_sampler_set_grammar(self.handle, model.handle, grammar.handle))

    def pick(self, logits) -> int:
        """The next token from logits[n_vocab] (float32, contiguous)"""
        return check(lib.cb_sampler_pick(self.handle, ffi.from_buffer("float[]", logits)))

    def accept(self, token: int) -> None:
        """Counts a token for penalties and the grammar."""
        lib.cb_sampler_accept(self.handle, token)
