# SPDX-License-Identifier: MIT
"""tiny_server.py - ctxbank serve on a tiny model whose template has a place for tools, or the
server at a given address; for the programs beside this file. Run in the build folder."""
import os
import re
import subprocess
import sys
import tempfile

TEMPLATE = ("{% for t in tools or [] %}{{ t.function.name }} {{ t.function.parameters | tojson }}\n"
            "{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
            "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>"
            "{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n")


class Server:
    """url; ends with the block. A url of the caller's is used as it is."""

    def __init__(self, url=None, *args):
        self.url, self.p = url, None
        if url:
            return
        build = os.getcwd()
        if not os.path.exists(os.path.join(build, "ctxbank")):
            sys.exit("run it in the build folder, or name a server")
        self.folder = tempfile.TemporaryDirectory(prefix="tiny-server-")
        model = os.path.join(self.folder.name, "tiny.gguf")
        template = os.path.join(self.folder.name, "tools.jinja")
        with open(template, "w", encoding="ascii") as f:
            f.write(TEMPLATE)
        subprocess.run([os.path.join(build, "tests", "kit", "make_tiny"), "qwen2", model],
                       check=True)
        self.p = subprocess.Popen(
            [os.path.join(build, "ctxbank"), "serve", "-m", model, "--port", "0", "-t", "1",
             "--chat-template-file", template, *args], stdout=subprocess.PIPE)
        self.url = re.search(r"http://\S+", self.p.stdout.readline().decode()).group()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p:
            self.p.terminate()
            rc = self.p.wait(60)
            self.p.stdout.close()
            self.folder.cleanup()
            assert rc == 0, f"the server ended with {rc}"
