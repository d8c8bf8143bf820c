"""A source of one small file, and the server on this machine that it is downloaded from."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ratecli.datasets.source import RemoteFile, Source


class Answers:
    """A web server on this machine: `give` says what a path answers, `asked` counts requests."""

    def __init__(self) -> None:
        self.given: dict[str, list[tuple[bytes, float]]] = {}
        self.asked: Counter[str] = Counter()
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answers.asked[self.path] += 1
                self.close_connection = True
                queue = answers.given.get(self.path, [(b"HTTP/1.0 404 None\r\n\r\nnone", 0.0)])
                answer, pause = queue.pop(0) if len(queue) > 1 else queue[0]
                step = 1 if pause else len(answer)
                for start in range(0, len(answer), step):
                    try:
                        self.wfile.write(answer[start : start + step])
                    except OSError:  # nobody listens any more
                        return
                    time.sleep(pause)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = False  # closing waits for them, and for their sockets
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def give_raw(self, path: str, answer: bytes, *, pause: float = 0.0) -> str:
        """Answer `path` (after what it was given before) with these bytes, a pause after each."""
        self.given.setdefault(path, []).append((answer, pause))
        return self.address + path

    def give(self, path: str, body: bytes, *, status: int = 200, length: int | None = None) -> str:
        """Answer `path` with a status and this body; `length` -1: state no length."""
        stated = len(body) if length is None else length
        head = f"HTTP/1.0 {status} Status\r\n" + f"Content-Length: {stated}\r\n" * (stated >= 0)
        return self.give_raw(path, head.encode() + b"\r\n" + body)


CONTENT = b"a,b\n1,2\n" * 500


def remote(url: str, content: bytes = CONTENT, *members: str) -> RemoteFile:
    return RemoteFile("t.csv", url, hashlib.sha256(content).hexdigest(), len(content), members)


def source(*files: RemoteFile) -> Source:
    return Source(
        name="toy",
        summary="",
        preparations={"plain": "nowhere:prepare"},
        rows=500,
        label="a",
        sensitive=(),
        licence="",
        notes="",
        files=files,
    )
