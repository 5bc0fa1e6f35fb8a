# SPDX-License-Identifier: MIT
"""_params - keyword arguments as the library's structs of parameters, and its structs as dicts."""
from typing import Any, Dict

from ._errors import text
from ._library import ffi


def filled(struct_name: str, defaults, given: Dict[str, Any], keep: list):
    """A struct with its defaults and the given fields. Texts live as long as the list `keep`.
    TypeError: a field that the struct lacks."""
    struct = ffi.new(struct_name + " *", defaults)
    fields = dict(ffi.typeof(struct_name).fields)
    for name, value in given.items():
        if name not in fields:
            raise TypeError(f"no parameter '{name}'; there are {', '.join(sorted(fields))}")
        if value is None:
            continue
        if isinstance(value, (str, bytes)):
            value = ffi.new("char[]", value.encode() if isinstance(value, str) else value)
            keep.append(value)
        setattr(struct, name, value)
    keep.append(struct)
    return struct


def as_dict(struct) -> Dict[str, Any]:
    """The fields of a struct whose pointers are texts"""
    out: Dict[str, Any] = {}
    for name, field in ffi.typeof(struct).fields:
        value = getattr(struct, name)
        out[name] = text(value) if field.type.kind == "pointer" else value
    return out
