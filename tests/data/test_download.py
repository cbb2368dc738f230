"""Downloads against a server on 127.0.0.1: resumed, checked, unpacked, and one error when it cannot be."""

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lightleak.core.errors import DataError, UsageError
from lightleak.core.registry import Registry
from lightleak.data import download
from lightleak.data.datasets import DATASETS
from lightleak.data.datasets.registry import Dataset, Download
from lightleak.data.download import fetch, prepare, unpack
from lightleak.data.sources import sha256_of
from lightleak.data.table import DatasetCard

CONTENT = bytes(range(256)) * 1000


class Server(ThreadingHTTPServer):
    """Serves ``files`` by path; resumes where ``ranges``; breaks off after ``cut`` bytes of a body."""

    files: dict[str, bytes]
    ranges = True
    cut: int | None = None
    requests: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append(wanted)
        body = self.server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : start + self.server.cut] if self.server.cut else body[start:])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.files, running.requests = {"/toy.csv": CONTENT}, []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def address(server: Server, path: str = "/toy.csv") -> str:
    return f"http://127.0.0.1:{server.server_port}{path}"


def register(monkeypatch: pytest.MonkeyPatch, *downloads: Download, files=("toy.csv",), sha256=None) -> None:
    """Make a registry whose only dataset is 'toy'."""
    card = DatasetCard(
        "toy",
        "Toy",
        tuple(d.url for d in downloads) or ("http://x.org/toy",),
        tuple(files),
        "a login",
        "c",
        "",
        sha256 or {},
    )
    registry: Registry[Dataset] = Registry("dataset")
    registry.register("toy")(Dataset(card, lambda folder, seed: None, downloads))
    monkeypatch.setattr(download, "DATASETS", registry)


def test_a_file_is_fetched_once_and_again_on_demand(server, monkeypatch, tmp_path) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    register(monkeypatch, Download(address(server), "toy.csv"), sha256={"toy.csv": digest})
    (ready,) = prepare("toy", tmp_path)
    assert ready.path == tmp_path / "toy" / "toy.csv"
    assert ready.path.read_bytes() == CONTENT
    assert (ready.sha256, ready.verified) == (digest, True)
    assert [p.name for p in ready.path.parent.iterdir()] == ["toy.csv"]
    prepare("toy", tmp_path)
    assert len(server.requests) == 1
    prepare("toy", tmp_path, force=True)
    assert len(server.requests) == 2


def test_a_file_without_a_known_checksum_is_kept_and_reported_as_unchecked(server, monkeypatch, tmp_path) -> None:
    register(monkeypatch, Download(address(server), "toy.csv"))
    (ready,) = prepare("toy", tmp_path)
    assert not ready.verified
    assert ready.sha256 == sha256_of(ready.path)


def test_a_wrong_checksum_names_both_and_keeps_nothing(server, monkeypatch, tmp_path) -> None:
    register(monkeypatch, Download(address(server), "toy.csv"), sha256={"toy.csv": "0" * 64})
    with pytest.raises(DataError, match=rf"expected SHA-256 {'0' * 64}, got {hashlib.sha256(CONTENT).hexdigest()}"):
        prepare("toy", tmp_path)
    assert list((tmp_path / "toy").iterdir()) == []


def test_a_damaged_file_that_is_there_is_noticed(server, monkeypatch, tmp_path) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    register(monkeypatch, Download(address(server), "toy.csv"), sha256={"toy.csv": digest})
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.csv").write_bytes(b"damaged")
    with pytest.raises(DataError, match="fetch it again with --force"):
        prepare("toy", tmp_path)
    assert server.requests == []
    prepare("toy", tmp_path, force=True)


def test_a_broken_transfer_says_so_and_is_carried_on(server, monkeypatch, tmp_path) -> None:
    register(monkeypatch, Download(address(server), "toy.csv"))
    server.cut = 100_000
    with pytest.raises(DataError, match=f"was interrupted after 100000 of {len(CONTENT)} bytes; rerun the command"):
        prepare("toy", tmp_path)
    assert (tmp_path / "toy" / "toy.csv.part").stat().st_size == 100_000
    assert not (tmp_path / "toy" / "toy.csv").exists()
    server.cut = None
    (ready,) = prepare("toy", tmp_path)
    assert ready.path.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=100000-"]


def test_a_server_that_cannot_resume_starts_anew(server, tmp_path) -> None:
    part = tmp_path / "toy.csv.part"
    part.write_bytes(b"first bytes of an older file")
    server.ranges = False
    fetch(address(server), part)
    assert part.read_bytes() == CONTENT


def test_a_part_as_long_as_the_file_starts_anew(server, tmp_path) -> None:
    part = tmp_path / "toy.csv.part"
    part.write_bytes(b"x" * len(CONTENT))
    fetch(address(server), part)
    assert part.read_bytes() == CONTENT
    assert server.requests == [f"bytes={len(CONTENT)}-", None]


def test_no_network_gives_one_error_with_the_address(server, monkeypatch, tmp_path) -> None:
    url = address(server)
    server.shutdown()
    server.server_close()
    register(monkeypatch, Download(url, "toy.csv"))
    with pytest.raises(DataError) as error:
        prepare("toy", tmp_path)
    assert url in str(error.value)
    assert "cannot be fetched" in str(error.value)
    assert str(tmp_path / "toy") in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_is_gone_gives_one_error(server, monkeypatch, tmp_path) -> None:
    register(monkeypatch, Download(address(server, "/gone.csv"), "toy.csv"))
    with pytest.raises(DataError, match=r"gone\.csv cannot be fetched: Not Found"):
        prepare("toy", tmp_path)


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return buffer.getvalue()


def tarred(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/"))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_named_members_are_unpacked_and_nothing_else(server, monkeypatch, tmp_path, pack) -> None:
    server.files["/toy.arc"] = pack(top__a__feats=b"features", top__a__labels=b"labels", top__evil=b"other")
    members = ("a/feats", "a/labels")
    register(monkeypatch, Download(address(server, "/toy.arc"), "toy.arc", members), files=members)
    ready = prepare("toy", tmp_path)
    assert [file.path.read_bytes() for file in ready] == [b"features", b"labels"]
    found = {str(p.relative_to(tmp_path / "toy")) for p in (tmp_path / "toy").rglob("*") if p.is_file()}
    assert found == {"a/feats", "a/labels"}
    prepare("toy", tmp_path)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (zipped(other=b""), "it has no 'feats'; it has .'other'."),
        (tarred(other=b""), "it has no 'feats'"),
        (b"no archive", "ReadError"),
    ],
    ids=["zip", "tar", "none"],
)
def test_a_bad_archive_is_named_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    archive = tmp_path / "toy.arc"
    archive.write_bytes(content)
    with pytest.raises(DataError, match=rf"toy\.arc cannot be read: .*{reason}"):
        unpack(archive, tmp_path, ("feats",))


def test_a_folder_in_the_place_of_a_member_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "toy.tar"
    with tarfile.open(archive, "w") as opened:
        entry = tarfile.TarInfo("feats")
        entry.type = tarfile.DIRTYPE
        opened.addfile(entry)
    with pytest.raises(DataError, match="'feats' is no file in it"):
        unpack(archive, tmp_path, ("feats",))


def test_what_only_a_person_can_fetch_says_from_where_and_whereto(monkeypatch, tmp_path) -> None:
    with pytest.raises(DataError) as error:
        prepare("health-heritage", tmp_path)
    for part in ("Claims.csv", "https://www.kaggle.com/c/hhp/data", str(tmp_path / "health-heritage"), "login"):
        assert part in str(error.value)
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "toy.csv").write_bytes(b"put here by hand")
    register(monkeypatch)
    (ready,) = prepare("toy", tmp_path)
    assert ready.path == folder / "toy.csv"


def test_what_is_generated_or_ships_in_a_package_needs_nothing(tmp_path: Path) -> None:
    assert prepare("synthetic", tmp_path) == prepare("fair", tmp_path) == ()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="unknown dataset 'nothing'"):
        prepare("nothing", tmp_path)


def test_official_addresses_are_https_or_named_as_the_exception() -> None:
    plain = [d.url for name in DATASETS for d in DATASETS.get(name).downloads if not d.url.startswith("https://")]
    assert plain == ["http://www.seaphe.org/databases/FOIA/lawschs1_1.dta"]  # the site never had a certificate
