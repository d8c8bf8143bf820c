"""Harmful models, ledgers, links, archives and names."""

from __future__ import annotations

import io
import json
import random
import shutil
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import pytest
from nested import changed, paths
from small import PLAIN

from ratecli.cli.app import main
from ratecli.datasets.files import extract_member
from ratecli.errors import FaultError
from ratecli.models.linear import Threshold
from ratecli.models.storage import dumps, loads

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
    with pytest.raises(ValueError, match="no stored classifier"):
        loads(blob)
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


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return the folder of a small experiment and its results."""
    place = tmp_path_factory.mktemp("ran")
    (place / "small.yaml").write_text(PLAIN.replace("seeds: 2", "seeds: 1"))
    run = ["run", place / "small.yaml", "-q", "-j", 1, "-o", place / "results"]
    assert main([*map(str, run)]) == 0
    return place


@pytest.fixture
def results(ran, folder):
    """Copy the experiment and its results to the working folder; return the results."""
    shutil.copytree(ran, folder, dirs_exist_ok=True)
    return folder / "results" / "small"


TAMPERED = [
    "UPDATE trials SET status = 'owned'",
    "UPDATE trials SET info = X'80049500'",
    "UPDATE trials SET info = '[1]'",
    "UPDATE trials SET trace = '{}'",
    "UPDATE trials SET trace = '[1]'",
    'UPDATE trials SET multipliers = \'{"a": "b"}\'',
    "UPDATE trials SET reason = X'FF'",
    "UPDATE trials SET seconds = 'long'",
    "UPDATE numbers SET value = 'much'",
    "UPDATE numbers SET value = X'00'",
    "UPDATE numbers SET measure = 999",
    "UPDATE measures SET metric = X'00' WHERE id = 1",
    "UPDATE models SET data = 'text'",
    'UPDATE plan SET point = \'{"kappa": {"a": 1}}\'',
    "UPDATE plan SET options = '" + "[" * 50_000 + "'",
    "UPDATE plan SET seed = '\"x\"'",
    "UPDATE plan SET metrics = '{\"error\": 1}'",
    "UPDATE meta SET value = '{' WHERE name = 'experiment'",
    "INSERT OR REPLACE INTO meta VALUES ('warnings at the end', '5')",
    "INSERT OR REPLACE INTO meta VALUES ('warnings', '[5]')",
]


@pytest.mark.parametrize("statement", TAMPERED, ids=lambda text: text[:40])
def test_a_changed_ledger_is_an_error(results, cli, statement):
    with sqlite3.connect(results / "trials.sqlite") as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(statement)
    db.close()
    answer = cli("report", "small.yaml")
    assert answer.code == 2
    assert "contains data that ratecli did not write" in answer.err


def test_names_in_a_ledger_cannot_leave_the_folder(results, cli, listing):
    with sqlite3.connect(results / "trials.sqlite") as db:
        db.execute("UPDATE plan SET label = '../../../../owned'")
        db.execute("UPDATE models SET variant = '/../../owned' || variant")
    db.close()
    before = set(listing())
    assert cli("report", "small.yaml").code == 0
    new = set(listing()) - before
    assert new
    assert all(path.startswith("results/small/") for path in new)


LINKS = ["", "/figures", "/models", "/trials.sqlite", "/.lock", "/.report.lock"]


@pytest.mark.parametrize("link", [f"small{name}" for name in LINKS])
@pytest.mark.usefixtures("results")
def test_links_out_of_the_results_are_refused(folder, cli, link):
    away = folder / "elsewhere"
    away.mkdir()
    place = folder / "results" / link
    place.rename(folder / "moved") if place.exists() else None
    place.symlink_to(away / "new" if "." in link else away)
    answer = cli("run", "small.yaml", "-j", 1)
    assert answer.code == 2
    assert "error[E505]" in answer.err
    assert "it is a link to" in answer.err
    assert list(away.iterdir()) == []


def test_the_results_folder_may_be_a_link(folder, cli):
    (folder / "disk").mkdir()
    (folder / "results").symlink_to(folder / "disk")
    (folder / "small.yaml").write_text(PLAIN.replace("seeds: 2", "seeds: 1"))
    assert cli("run", "small.yaml", "-q", "-j", 1).code == 0
    assert (folder / "disk" / "small" / "report.html").is_file()


def test_escape_codes_in_names_are_not_printed(folder, cli):
    text = json.dumps(WILD)
    (folder / "exp.yaml").write_text(
        PLAIN.replace("name: small", f"name: small\ndescription: {text}").replace(
            "sex = Female", json.dumps(f'sex = "{WILD}"')
        )
    )
    (folder / "ls.yaml").write_text(f"name: {text}\ndescription: {text}\n")
    for command in (
        ("validate", "exp.yaml"),
        ("validate", "exp.yaml", "--format", "json"),
        ("validate", "exp.yaml", "--format", "github"),
        ("explain", "exp.yaml"),
        ("plan", "exp.yaml"),
        ("ls", "experiments"),
        ("ls", "experiments", "--json"),
        ("run", "exp.yaml", "-j", 1),
    ):
        answer = cli(*command)
        assert not set("\x1b\x07\u202e") & set(answer.out + answer.err), command


def test_escape_codes_and_scripts_in_a_table(folder, cli):
    rows = "".join(f'"=cmd|x",{WILD},{k % 2},{k % 7}\n' for k in range(60))
    rows += "".join(f"b,c,{k % 2},{k % 5}\n" for k in range(60))
    (folder / "t.csv").write_text(f'"<script>","{WILD}",y,x\n{rows}', encoding="utf-8")
    answer = cli("init", "exp.yaml", "--data", "t.csv", "--label", "y", "--group", WILD)
    assert answer.code == 0, answer.err
    fewer = ("--set", "seeds=1", "--set", "sweep.kappa=[0.8]", "--set", "report.plots=[]")
    for command in (
        ("explain", "exp.yaml"),
        ("plan", "exp.yaml"),
        ("run", "exp.yaml", "-j", 1, *fewer),
    ):
        told = cli(*command)
        assert told.code == 0
        assert not set("\x1b\x07\u202e") & set(told.out + told.err), command
    assert "<script>" not in (folder / "results" / "t" / "report.html").read_text().split("<body")[
        1
    ].replace("<script>\n", "")


def test_duplicate_names_in_an_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("f.csv", b"1" * 10)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("f.csv", b"2" * 100_000)
    with pytest.raises(FaultError) as caught:
        extract_member(tmp_path / "a.zip", ("f.csv",), 1000)
    assert caught.value.faults[0].code == "E409"


def test_paths_that_are_too_long(folder, cli):
    long = "a" * 5000
    assert cli("validate", f"{long}.yaml").code == 2
    assert cli("predict", f"{long}.npz", "t.csv").code == 4
    (folder / "t.csv").write_text("x\n1\n")
    assert cli("init", "x.yaml", "--data", f"{long}.csv", "--label", "y", "--group", "g").code == 4
    text = (
        f"name: x\ndatasets: {{d: {{path: {long}.csv, label: y}}}}\nalgorithms: [unconstrained]\n"
    )
    (folder / "exp.yaml").write_text(text)
    answer = cli("validate", "exp.yaml")
    assert (answer.code, "error[E405]" in answer.err) == (4, True)
    assert len(answer.err) < 3000


OWN = """\
name: own
datasets: {d: {path: people.csv, label: y, categorical: [code]}}
groups: {women: sex = F, men: sex = M}
constraints: {parity: 'positive_rate[women] >= 0.9 * positive_rate[men]'}
algorithms: [post_shift]
"""
HARM: tuple[object, ...] = (
    None, True, -1, 0, 2**70, 1e308, "", "x", "\0", "\ud800", [], {}, [[]], [None], {"": None}, [0] * 50, {"a": {"b": 1}},
)  # fmt: skip


@pytest.fixture(scope="module")
def own_model(tmp_path_factory):
    """Run an experiment on a table; return the folder of both."""
    place = tmp_path_factory.mktemp("own")
    rows = (f"{'FM'[k % 2]},{k * 7 % 11},{k % 3},{k // 2 % 2}\n" for k in range(200))
    (place / "people.csv").write_text("sex,x,code,y\n" + "".join(rows))
    (place / "own.yaml").write_text(OWN)
    results = str(place / "results")
    assert main(["run", str(place / "own.yaml"), "-q", "-j", "1", "-o", results]) == 0
    return place


def test_any_encoder_gives_a_table_or_an_error(own_model, folder, cli):
    (trial,) = (own_model / "results" / "own" / "models").iterdir()
    (folder / "m").mkdir()
    for path in trial.iterdir():
        (folder / "m" / path.name).write_bytes(path.read_bytes())
    content = json.loads((trial / "encoder.json").read_text())
    places = list(paths(content))
    chance = random.Random(1)
    codes = set()
    for _ in range(80):
        harmed = content
        for _ in range(chance.choice((1, 1, 2))):
            path = chance.choice(places)
            try:
                harmed = changed(harmed, path, chance.choice(HARM))
            except (KeyError, IndexError, TypeError, AttributeError):
                continue  # the first change took the place of the second away
        (folder / "m" / "encoder.json").write_text(json.dumps(harmed))
        answer = cli("predict", "m", own_model / "people.csv", "-o", "out.csv")
        assert answer.code in {0, 2, 4}, (answer.err, json.dumps(harmed)[:2000])
        codes.add(answer.code)
    assert {0, 4} <= codes


TABLES = {
    "html": b"<!DOCTYPE html><html>",
    "binary": b"sex,x,code,y\nF,\x00,1,1\n",
    "utf-16": "sex,x,code,y\nF,1,1,1\n".encode("utf-16"),
    "ragged": b"sex,x,code,y\nF,1\n",
    "quotes without end": b'sex,x,code,y\n"F,1,1,1\n',
    "endless line": b"sex,x,code,y\n" + b"F" * 3_000_000 + b",1,1,1\n",
    "many columns": b",".join(b"c%d" % k for k in range(3000)) + b"\n" + b"1," * 2999 + b"1\n",
    "twice": b"sex,sex,x,code,y\nF,F,1,1,1\n",
    "numbers without end": b"sex,x,code,y\nF,1e999,1,1\nM,-1e999,1,0\n",
    "nothing": b"",
    "a parquet that is none": b"PAR1" + b"\xff" * 64 + b"PAR1",
}


@pytest.mark.parametrize("name", TABLES)
def test_hostile_tables(own_model, folder, cli, name):
    (trial,) = (own_model / "results" / "own" / "models").iterdir()
    (folder / "t.csv").write_bytes(TABLES[name])
    (folder / "t.parquet").write_bytes(TABLES[name])
    for table in ("t.csv", "t.parquet"):
        for command in (
            ("predict", trial, table),
            ("filter", table, "--by", "sex"),
            ("init", "x.yaml", "--data", table, "--label", "y", "--group", "sex"),
        ):
            answer = cli(*command)
            assert answer.code in {0, 2, 4}, (command, answer.err[:2000])
            assert len(answer.err) < 5000
