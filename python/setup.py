# SPDX-License-Identifier: MIT
"""setup - the wheel's version is that of ctxbank.h, and its tag names the platform if the C library
is inside: any Python 3, since nothing is compiled against Python."""
import os
import re

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
INSIDE = os.path.exists(os.path.join(HERE, "ctxbank", "libctxbank.so.0"))


def version():
    for header in (os.path.join(HERE, "ctxbank", "ctxbank.h"),
                   os.path.join(HERE, "..", "include", "ctxbank.h")):
        if os.path.exists(header):
            with open(header, encoding="utf-8") as f:
                return re.search(r'CTXBANK_VERSION_STRING "([^"]+)"', f.read())[1]
    raise SystemExit("setup: no ctxbank.h")


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return INSIDE


class Wheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(version=version(), distclass=WithLibrary, cmdclass={"bdist_wheel": Wheel})
