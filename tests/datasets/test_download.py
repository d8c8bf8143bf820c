from __future__ import annotations

import hashlib
import io
import os
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ratecli.datasets import files
from ratecli.datasets.source import RemoteFile, Source
from ratecli.errors import Diagnostic, FaultError


class Answers:
    """A web server on this machine: `give` says what a path answers, `asked` counts requests."""

    def __init__(self) -> None:
        self.given: dict[str, list[bytes]] = {}
        self.asked: Counter[str] = Counter()
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answers.asked[self.path] += 1
                self.close_connection = True
                queue = answers.given.get(self.path, [b"HTTP/1.0 404 None\r\n\r\nnone"])
                with suppress(OSError):  # nobody listens any more
                    self.wfile.write(queue.pop(0) if len(queue) > 1 else queue[0])

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = False  # closing waits for them, and for their sockets
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def give_raw(self, path: str, answer: bytes) -> str:
        """Answer `path` (after what it was given before) with these bytes."""
        self.given.setdefault(path, []).append(answer)
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
    return Source("toy", "", {"plain": "nowhere:prepare"}, 500, "a", (), "", "", files=files)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """The server, no proxy before it, and no mirror."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("RATECLI_DATA_MIRROR", raising=False)
    monkeypatch.setattr(files, "RETRY_SECONDS", 0.01)
    answers = Answers()
    thread = threading.Thread(target=answers.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield answers
    answers.server.shutdown()
    thread.join()
    answers.server.server_close()


def refused(toy: Source, *, offline: bool = False) -> Diagnostic:
    with pytest.raises(FaultError) as caught:
        files.fetch_files(toy, offline=offline)
    assert caught.value.exit_code == 4
    (fault,) = caught.value.faults
    assert fault.help
    return fault


def zipped(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def test_file_is_downloaded_once_with_progress(web: Answers, data: Path):
    toy = source(remote(web.give("/t.csv", CONTENT)))
    fault = refused(toy, offline=True)
    assert (fault.code, "ratecli fetch toy" in str(fault.help)) == ("E401", True)
    assert not web.asked
    told: list[tuple[str, int, int]] = []
    paths = files.fetch_files(toy, progress=lambda *what: told.append(what))
    assert paths == {"t.csv": data / "toy" / "t.csv"}
    assert paths["t.csv"].read_bytes() == CONTENT
    assert told[-1] == ("t.csv", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert files.missing_source_files(toy) == []
    for offline in (True, False):
        files.fetch_files(toy, offline=offline)
    assert web.asked["/t.csv"] == 1
    assert sorted(p.name for p in data.rglob("*")) == ["t.csv", "toy"]
    paths["t.csv"].write_bytes(CONTENT + b"3,4\n")
    assert refused(toy).code == "E403"
    assert paths["t.csv"].read_bytes() == CONTENT + b"3,4\n"


def test_file_without_known_sha256_is_refused_until_the_user_vouches(web: Answers, data: Path):
    url = web.give("/t.csv", CONTENT, length=-1)
    toy = source(RemoteFile("t.csv", url, sha256="", size=0))
    fault = refused(toy)
    assert fault.code == "E403"
    assert str(fault.help).endswith(f"{hashlib.sha256(CONTENT).hexdigest()}  t.csv")
    (data / "toy" / "SHA256SUMS").write_text(str(fault.help).rpartition("SHA256SUMS: ")[2])
    files.fetch_files(toy, offline=True)
    assert web.asked["/t.csv"] == 1


WRONG = CONTENT.replace(b"1", b"7")
LYING = zipped("t.csv", b"0" * 5000).replace(
    (5000).to_bytes(4, "little"), (4000).to_bytes(4, "little")
)


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ((WRONG,), "E403", "sha256"),
        ((b"0" * 10_000,), "E402", "it is over 9,000 bytes"),
        ((CONTENT[:100],), "E403", "it has 100"),
        ((zipped("t.csv", b"0" * 3_000_000), "t.csv"), "E409", "larger than 9,000 bytes"),
        ((LYING, "t.csv"), "E402", "cannot be extracted"),
        ((zipped("other.csv", CONTENT), "t.csv"), "E402", "no item named 't.csv'"),
        ((zipped("t.csv", CONTENT)[:-30], "t.csv"), "E402", "cannot be extracted"),
        ((b"PK nothing", "t.csv"), "E402", "cannot be extracted"),
        ((zipped("t.csv", WRONG), "t.csv"), "E403", "sha256"),
    ],
)
def test_wrong_file_or_unsafe_archive_leaves_nothing(  # noqa: PLR0917
    web: Answers,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[Any, ...],
    code: str,
    said: str,
):
    monkeypatch.setattr(files, "MAX_BYTES", 9000)
    body, *members = answer
    fault = refused(source(remote(web.give("/t", body, length=-1), CONTENT, *members)))
    assert (fault.code, said in fault.message) == (code, True), fault.message
    assert not data.exists()


@pytest.mark.parametrize(
    "head",
    [
        b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"200 OK\r\nContent-Encoding: gzip\r\n\r\n",
        b"200 OK\r\nContent-Length: 5000\r\n\r\n",
        b"302 Found\r\nLocation: http://[bad/\r\n\r\n",
        b"302 Found\r\nLocation: http://.a/\r\n\r\n",
        b"302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
        b"404 Not Found\r\n\r\n",
    ],
)
def test_invalid_http_answers_are_errors(web: Answers, data: Path, head: bytes):
    url = web.give_raw("/t.csv", b"HTTP/1.1 " + head + CONTENT)
    assert refused(source(remote(url))).code == "E402"
    assert not data.exists()
    assert web.asked["/t.csv"] == 1


def test_public_address_is_used_if_the_mirror_lacks_the_file(
    web: Answers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RATECLI_DATA_MIRROR", web.address + "/m/")
    toy = source(remote(web.give("/t.csv", CONTENT)))
    path = files.fetch_files(toy)["t.csv"]
    assert path.read_bytes() == CONTENT
    assert list(web.asked.items()) == [("/m/toy/t.csv", 1), ("/t.csv", 1)]
    path.unlink()
    del web.given["/t.csv"]
    assert "404" in refused(toy).message


def test_a_file_of_the_mirror_is_not_read_beyond_the_limit(
    web: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RATECLI_DATA_MIRROR", str(tmp_path))
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "t.csv").touch()
    os.truncate(tmp_path / "toy" / "t.csv", 2**40)  # more than fits in memory
    message = refused(source(remote(f"{web.address}/none"))).message
    assert f"it is over {files.MAX_BYTES:,} bytes" in message


def test_request_is_repeated_after_errors_of_the_server(
    web: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    web.give("/s.csv", b"busy", status=500)
    toy = source(remote(web.give("/s.csv", CONTENT)))
    (tmp_path / "file").touch()
    monkeypatch.setenv("RATECLI_DATA", str(tmp_path / "file" / "data"))
    fault = refused(toy)
    assert (fault.code, "cannot be written" in fault.message) == ("E402", True)
    assert web.asked["/s.csv"] == 2


def test_mirror_is_used_first_and_offline_and_is_verified(
    web: Answers, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mirror = tmp_path / "mirror" / "toy"
    mirror.mkdir(parents=True)
    monkeypatch.setenv("RATECLI_DATA_MIRROR", str(tmp_path / "mirror"))
    # the mirror holds the extracted file
    for toy in (
        source(remote(web.give("/t.csv", b"other"))),
        source(remote(web.address + "/z.zip", CONTENT, "t.csv")),
    ):
        (mirror / "t.csv").write_bytes(b"<html>")
        assert refused(toy).code == "E403"
        assert not list(data.rglob("*.*"))
        (mirror / "t.csv").write_bytes(CONTENT)
        assert files.fetch_files(toy, offline=True)["t.csv"].read_bytes() == CONTENT
        (data / "toy" / "t.csv").unlink()
    assert not web.asked


def test_file_in_a_nested_archive_is_extracted(web: Answers, data: Path):
    url = web.give("/z.zip", zipped("inner.zip", zipped("t.csv", CONTENT)))
    toy = source(remote(url, CONTENT, "inner.zip", "t.csv"))
    assert files.fetch_files(toy)["t.csv"].read_bytes() == CONTENT
    assert sorted(p.name for p in data.rglob("*")) == ["t.csv", "toy"]
