"""A local server that accepts uploads of huggingface_hub.

It has one account. A commit is accepted if its model was created before, as a private one, and has
a card, weights and the code that loads them. All files are part of the commit; the real hub stores
large ones separately.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_theOneAccountOfTheStandIn"
_NEEDED = {"README.md", "config.json", "model.safetensors", "modeling_auber.py"}


class HubServer(ThreadingHTTPServer):
    """Hold the uploaded files of each model by name in `models`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.models: dict[str, dict[str, bytes]] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serve_hub() -> Iterator[HubServer]:
    """Run the server in a thread."""
    with HubServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Answer(BaseHTTPRequestHandler):
    server: HubServer

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._send(401, {"error": "Invalid username or password."})
        elif self.path == "/api/repos/create":
            self._make(json.loads(content))
        elif self.path == "/api/validate-yaml":
            self._send(200, {"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/(.+)/preupload/main", self.path):
            files = json.loads(content)["files"]
            answers = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in files
            ]
            self._send(200 if found[1] in self.server.models else 404, {"files": answers})
        elif found := re.fullmatch(r"/api/models/(.+)/commit/main", self.path):
            self._take(found[1], [json.loads(line) for line in content.splitlines()])
        else:
            self._send(404, {"error": f"the stand-in has no {self.path}"})

    def _make(self, wanted: dict[str, Any]) -> None:
        # Older clients send `private`.
        if wanted.get("visibility") != "private" and not wanted.get("private"):
            self._send(400, {"error": "a new model must be private"})
            return
        name = f"{wanted.get('organization') or 'me'}/{wanted['name']}"
        self.server.models.setdefault(name, {})
        self._send(200, {"url": f"{self.server.address}/{name}", "name": name})

    def _take(self, name: str, lines: list[dict[str, Any]]) -> None:
        files = {
            line["value"]["path"]: base64.b64decode(line["value"]["content"])
            for line in lines
            if line["key"] == "file"
        }
        if name not in self.server.models or not files.keys() >= _NEEDED:
            found = f"{name}: needs a created model and {sorted(_NEEDED)}, found {sorted(files)}"
            self._send(400, {"error": found})
            return
        self.server.models[name] |= files
        number = "0" * 40
        self._send(
            200,
            {
                "success": True,
                "commitOid": number,
                "commitUrl": f"{self.server.address}/{name}/commit/{number}",
            },
        )

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""
