# SPDX-License-Identifier: MIT
"""_errors - the library's statuses as exceptions."""
from ._library import ffi, lib


class Error(RuntimeError):
    """A call of the library failed. `status` is its negative number, str() its line of why."""

    def __init__(self, status: int, why: str):
        super().__init__(why)
        self.status = status


class OutOfMemory(Error, MemoryError):
    """CB_ENOMEM"""


class FileError(Error, OSError):
    """CB_EIO: a file could not be opened, read or written."""


class FormatError(Error, ValueError):
    """CB_EFORMAT: a file is damaged or has another format."""


class Unsupported(Error):
    """CB_EUNSUPPORTED: the file or option is valid, but not supported."""


class ArgumentError(Error, ValueError):
    """CB_EARG: an argument is out of range, or a name is unknown."""


class ContextFull(Error):
    """CB_EFULL: the tokens do not fit into the context."""


class Canceled(Error):
    """CB_ECANCEL: a callback asked to stop."""


_KINDS = {lib.CB_ENOMEM: OutOfMemory, lib.CB_EIO: FileError, lib.CB_EFORMAT: FormatError,
          lib.CB_EUNSUPPORTED: Unsupported, lib.CB_EARG: ArgumentError,
          lib.CB_EFULL: ContextFull, lib.CB_ECANCEL: Canceled}


def text(pointer) -> str:
    """A C text; "" for NULL"""
    return ffi.string(pointer).decode("utf-8", "replace") if pointer else ""


def check(status: int) -> int:
    """The status where it is a success; else raises what the library says."""
    if status < 0:
        raise _KINDS.get(status, Error)(status, text(lib.cb_error()) or
                                        text(lib.cb_status_text(status)))
    return status
