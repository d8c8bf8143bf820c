"""Harmful models, ledgers, links, archives and names."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from people import EXPERIMENTS, trial
from resealed import change_ledger
from small import PLAIN

from ratecli.datasets.files import extract_member
from ratecli.errors import FaultError
from ratecli.models.linear import Threshold
from ratecli.models.storage import dumps

WILD = "\x1b]0;owned\x07\x1b[31mred\u202e"


def compressed(blob: bytes) -> bytes:
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(blob)) as old,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for part in old.infolist():
            new.writestr(part.filename, old.read(part))
    return buffer.getvalue()


def repeated(blob: bytes) -> bytes:
    """Return an archive whose directory lists the same bytes many times."""
    buffer = io.BytesIO(blob)
    with zipfile.ZipFile(buffer, "a") as archive:
        first = archive.infolist()[0]
        archive.filelist += [first] * 50
        archive._didModify = True
    return buffer.getvalue()


def empty_elements(count: int) -> bytes:
    """Return a model with an array of many elements of 0 bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, kind="ramp", bias=0.0)
    header = f"{{'descr': '|V0', 'fortran_order': False, 'shape': ({count},), }}".ljust(117) + "\n"
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("weights.npy", b"\x93NUMPY\x01\x00" + bytes([118, 0]) + header.encode())
    return buffer.getvalue()


@pytest.mark.parametrize(
    "blob",
    [
        compressed(dumps(Threshold(np.zeros(10**4)))),
        repeated(dumps(Threshold(np.zeros(100)))),
        empty_elements(10**9),
    ],
)
def test_models_that_inflate_are_refused(folder, cli, blob):
    (folder / "m.npz").write_bytes(blob)
    (folder / "exp.yaml").write_text(f"{PLAIN}deployed: {{model: m.npz}}\n")
    answer = cli("validate", "exp.yaml")
    assert answer.code == 4
    assert "error[E404]: 'm.npz' holds no stored classifier" in answer.err


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no devices here")
def test_a_device_is_no_model(cli, folder):
    (folder / "t.csv").write_text("x\n1\n")
    answer = cli("predict", "/dev/zero", "t.csv")
    assert (answer.code, "is not a file" in answer.err) == (4, True)


@pytest.mark.usefixtures("rows")
def test_names_in_a_ledger_cannot_leave_the_folder(cli, listing):
    change_ledger(
        "results/first/trials.sqlite",
        plan=lambda plan: [trial | {"label": "../../../../owned"} for trial in plan],
        blobs=lambda blobs: {
            "encoding": blobs["encoding"],
            "models": {f"/../../owned{name}": own for name, own in blobs["models"].items()},
        },
    )
    before = set(listing())
    assert cli("report", "first.yaml").code == 0
    new = set(listing()) - before
    assert new
    assert all(path.startswith("results/first/") for path in new)


LINKS = ["", "/figures", "/models", "/trials.sqlite", "/.lock", "/.report.lock"]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("link", LINKS)
def test_links_out_of_the_results_are_refused(folder, cli, link):
    away = folder / "elsewhere"
    away.mkdir()
    place = folder / f"results/first{link}"
    place.rename(folder / "moved") if place.exists() else None
    place.symlink_to(away / "new" if "." in link else away)
    answer = cli("run", "first.yaml", "-j", 1)
    assert answer.code == 2
    assert "error[E505]" in answer.err
    assert "it is a link to" in answer.err
    assert list(away.iterdir()) == []


def test_the_results_folder_may_be_a_link(folder, cli):
    (folder / "disk").mkdir()
    (folder / "results").symlink_to(folder / "disk")
    (folder / "clicks.yaml").write_text(EXPERIMENTS["clicks"])
    assert cli("run", "clicks.yaml", "-q", "-j", 1).code == 0
    assert (folder / "disk" / "clicks" / "report.html").is_file()


def no_escape_codes(cli, *commands: tuple) -> None:
    for command in commands:
        answer = cli(*command)
        assert not set("\x1b\x07\u202e") & set(answer.out + answer.err), command


def test_escape_codes_in_names_are_not_printed(folder, cli):
    text, value = json.dumps(WILD), json.dumps(f'sex = "{WILD}"')
    described = PLAIN.replace("name: small", f"name: small\ndescription: {text}")
    (folder / "exp.yaml").write_text(described.replace("sex = Female", value))
    (folder / "ls.yaml").write_text(f"name: {text}\ndescription: {text}\n")
    formats = (("validate", "exp.yaml", "--format", kind) for kind in ("text", "json", "github"))
    others = (("explain", "exp.yaml"), ("plan", "exp.yaml"), ("run", "exp.yaml", "-j", 1))
    lists = (("ls", "experiments"), ("ls", "experiments", "--json"))
    no_escape_codes(cli, *formats, *others, *lists)


def test_escape_codes_and_scripts_in_a_table(folder, cli):
    rows = "".join(f'{WILD},"=cmd|x",{k % 2},{k % 7}\nb,c,{k % 2},{k % 5}\n' for k in range(60))
    (folder / "t.csv").write_text(f'"<script>","{WILD}",y,x\n{rows}', encoding="utf-8")
    init = (
        "init",
        "exp.yaml",
        "--data",
        "t.csv",
        "--label",
        "y",
        "--group",
        "<script>",
        "--group",
        WILD,
    )
    fewer = ("seeds=1", "sweep.limit=[0.8]", "report.plots=[]", "algorithms=[unconstrained]")
    run = ("run", "exp.yaml", "-j", 1, *(each for text in fewer for each in ("--set", text)))
    no_escape_codes(cli, init, ("explain", "exp.yaml"), ("plan", "exp.yaml"), run)
    page = (folder / "results" / "exp" / "report.html").read_text().split("<body")[1]
    assert "&lt;script&gt;" in page
    assert "<script>" not in page.replace("<script>\n", "")


def test_duplicate_names_in_an_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("f.csv", b"1" * 10)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("f.csv", b"2" * 100_000)
    with pytest.raises(FaultError) as caught:
        extract_member((tmp_path / "a.zip").read_bytes(), ("f.csv",), 1000)
    assert caught.value.faults[0].code == "E409"


def test_paths_that_are_too_long(folder, cli):
    long = "a" * 5000
    (folder / "t.csv").write_text("x\n1\n")
    data = f"datasets: {{d: {{path: {long}.csv, label: y}}}}"
    (folder / "exp.yaml").write_text(f"name: x\n{data}\nalgorithms: [unconstrained]\n")
    for code, *arguments in (
        (2, "validate", f"{long}.yaml"),
        (4, "validate", "exp.yaml"),
        (4, "predict", f"{long}.npz", "t.csv"),
        (4, "init", "x.yaml", "--data", f"{long}.csv", "--label", "y", "--group", "g"),
    ):
        answer = cli(*arguments)
        assert (answer.code, len(answer.err) < 6000) == (code, True), arguments[:1]


TABLES = {
    "html": b"<!DOCTYPE html><html>",
    "binary": b"sex,x,z,job,zip\nF,\x00,1,1,1\n",
    "utf-16": "sex,x,z,job,zip\nF,1,1,1,1\n".encode("utf-16"),
    "ragged": b"sex,x,z,job,zip\nF,1\n",
    "quotes without end": b'sex,x,z,job,zip\n"F,1,1,1,1\n',
    "endless line": b"sex,x,z,job,zip\n" + b"F" * 3_000_000 + b",1,1,1,1\n",
    "many columns": b",".join(b"c%d" % k for k in range(300)) + b"\n" + b"1," * 299 + b"1\n",
    "twice": b"sex,sex,x,z,job,zip\nF,F,1,1,1,1\n",
    "numbers without end": b"sex,x,z,job,zip\nF,1e999,1,1,1\nM,-1e999,1,1,0\n",
    "nothing": b"",
    "a parquet that is none": b"PAR1" + b"\xff" * 64 + b"PAR1",
}


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("name", TABLES)
def test_hostile_tables_are_read_or_refused(folder, cli, name):
    for table in ("t.csv", "t.parquet"):
        (folder / table).write_bytes(TABLES[name])
        for command in (
            ("predict", trial("majorize"), table),
            ("filter", table, "--by", "sex"),
            ("init", "x.yaml", "--data", table, "--label", "y", "--group", "sex"),
        ):
            answer = cli(*command)
            assert answer.code in {0, 2, 4}, (command, answer.err[:2000])
            assert len(answer.err) < 5000
