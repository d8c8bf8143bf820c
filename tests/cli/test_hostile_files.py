"""What others may have made: models, ledgers, links, archives and names that mean harm."""

from __future__ import annotations

import io
import json
import os
import random
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


def told_twice(blob: bytes) -> bytes:
    """The directory names the same bytes again and again."""
    buffer = io.BytesIO(blob)
    with zipfile.ZipFile(buffer, "a") as archive:
        first = archive.infolist()[0]
        archive.filelist += [first] * 50
        archive._didModify = True
    return buffer.getvalue()


def of_nothing(count: int) -> bytes:
    """An array of many elements that have no bytes."""
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
        told_twice(dumps(Threshold(np.zeros(100)))),
        of_nothing(10**9),
    ],
)
def test_a_model_that_is_more_than_its_bytes(folder, cli, blob):
    with pytest.raises(ValueError, match="no stored classifier"):
        loads(blob)
    (folder / "m.npz").write_bytes(blob)
    (folder / "exp.yaml").write_text(f"{PLAIN}deployed: {{model: m.npz}}\n")
    answer = cli("validate", "exp.yaml")
    assert answer.code == 4
    assert "error[E404]: 'm.npz' holds no stored classifier" in answer.err


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308])
def test_a_model_whose_scores_are_no_numbers(folder, cli, value):
    (folder / "t.csv").write_text("x,sex,y\n" + "1,F,0\n2,M,1\n" * 60)
    (folder / "m.npz").write_bytes(dumps(Threshold(np.array([value, value]))))
    text = "name: x\ndatasets: {d: {path: t.csv, label: y}}\nalgorithms: [audit]\ndeployed: {model: m.npz}\nmetrics: {c: churn}\n"
    (folder / "exp.yaml").write_text(text)
    answer = cli("run", "exp.yaml", "-j", 1)
    assert answer.code in {1, 2, 4}
    assert "Traceback" not in answer.err
    assert "internal error" not in answer.err


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no devices here")
def test_a_model_without_end(cli, folder):
    (folder / "t.csv").write_text("x\n1\n")
    answer = cli("predict", "/dev/zero", "t.csv")
    assert (answer.code, "is not a file" in answer.err) == (4, True)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Results of a small run, and the experiment."""
    place = tmp_path_factory.mktemp("ran")
    before = Path.cwd()
    os.chdir(place)
    try:
        (place / "small.yaml").write_text(PLAIN.replace("seeds: 2", "seeds: 1"))
        assert main(["run", "small.yaml", "-q", "-j", "1"]) == 0
    finally:
        os.chdir(before)
    return place


def copied(ran: Path, folder: Path) -> Path:
    import shutil  # noqa: PLC0415

    shutil.copy(ran / "small.yaml", folder)
    shutil.copytree(ran / "results", folder / "results")
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
def test_a_ledger_that_someone_changed(ran, folder, cli, statement):
    results = copied(ran, folder)
    with sqlite3.connect(results / "trials.sqlite") as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(statement)
    db.close()
    answer = cli("report", "small.yaml")
    assert answer.code == 2
    assert "contains data that ratecli did not write" in answer.err


def test_names_in_a_ledger_lead_nowhere_else(ran, folder, cli, listing):
    results = copied(ran, folder)
    with sqlite3.connect(results / "trials.sqlite") as db:
        db.execute("UPDATE plan SET label = '../../../../owned'")
        db.execute("UPDATE models SET variant = '/../../owned' || variant")
    db.close()
    before = set(listing())
    assert cli("report", "small.yaml").code == 0
    new = set(listing()) - before
    assert new
    assert all(path.startswith("results/small/") for path in new)


@pytest.mark.parametrize(
    "link",
    [
        "small",
        "small/figures",
        "small/models",
        "small/trials.sqlite",
        "small/.lock",
        "small/.report.lock",
    ],
)
def test_nothing_is_written_through_links_that_lead_away(ran, folder, cli, link):
    copied(ran, folder)
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


def test_results_may_be_a_link_themselves(folder, cli):
    (folder / "disk").mkdir()
    (folder / "results").symlink_to(folder / "disk")
    (folder / "small.yaml").write_text(PLAIN.replace("seeds: 2", "seeds: 1"))
    assert cli("run", "small.yaml", "-q", "-j", 1).code == 0
    assert (folder / "disk" / "small" / "report.html").is_file()


@pytest.mark.parametrize(
    "setting",
    ["name=../../x", "name=/tmp/x", "name=.", "name=..", "name=", "name=a/b", "name=CON:"],
)
def test_names_that_would_lead_out_of_the_results(cli, small, listing, setting):
    before = listing()
    answer = cli("run", small, "--set", setting)
    assert answer.code == 2
    assert listing() == before


@pytest.mark.parametrize(
    "setting",
    [
        "a.b.c.d=" + "[" * 5000,
        "seeds=!!python/object/apply:os.system ['id']",
        "seeds=&a [*a]",
        "seeds=1\nname: other",
        'name="\\0"',
        "=1",
        "...=1",
        "seeds",
        "seeds.0.1=2",
        "algorithms." + "9" * 400 + "=1",
    ],
)
def test_settings_are_data_and_nothing_else(cli, small, setting):
    answer = cli("validate", small, "--set", setting)
    assert answer.code == 2
    assert "error[E10" in answer.err


@pytest.mark.parametrize(
    "mirror",
    ["file:///etc", "ftp://127.0.0.1:9", "http://[::1", "gopher://x", "http://", "/dev", "/proc/self", "\udcff", "x\ny",
     "https://user:secret@127.0.0.1:9/", "C:\\data", "~"],
)  # fmt: skip
def test_odd_places_of_a_mirror(cli, monkeypatch, mirror, folder):
    monkeypatch.setenv("RATECLI_DATA_MIRROR", mirror)
    answer = cli("fetch", "compas", "--offline")
    assert answer.code == 4
    assert "error[E401]" in answer.err
    assert not (folder / "data" / "compas").exists()


def test_orders_to_the_terminal_in_names_stay_text(folder, cli):
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


def test_columns_and_values_of_a_hostile_table(folder, cli):
    """A formula stays what it is: whoever opens a CSV in a spreadsheet is asked there."""
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


def packed(count: int = 3) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for k in range(count):
            archive.writestr(f"f{k}.csv", b"a,b\n" + b"1,2\n" * 50)
    return buffer.getvalue()


def test_damaged_archives_end_in_a_fault(tmp_path):
    """Whatever bytes are changed: a file of the size, or an E4."""
    whole = packed()
    chance = random.Random(3)
    ends = set()
    for _ in range(300):
        raw = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 6))):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        cut = len(raw) if chance.random() < 0.8 else chance.randrange(len(raw))
        (tmp_path / "a.zip").write_bytes(bytes(raw[:cut]))
        try:
            extract_member(tmp_path / "a.zip", ("f1.csv",), 10_000)
            ends.add("extracted")
        except FaultError as error:
            ends |= {fault.code for fault in error.faults}
    assert ends == {"extracted", "E402"}


def test_a_name_that_is_there_twice(tmp_path):
    """What is checked is what is extracted."""
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
    """The folder of a trial on a table, and the table."""
    place = tmp_path_factory.mktemp("own")
    rows = (f"{'FM'[k % 2]},{k * 7 % 11},{k % 3},{k // 2 % 2}\n" for k in range(200))
    (place / "people.csv").write_text("sex,x,code,y\n" + "".join(rows))
    (place / "own.yaml").write_text(OWN)
    results = str(place / "results")
    assert main(["run", str(place / "own.yaml"), "-q", "-j", "1", "-o", results]) == 0
    return place


def test_whatever_an_encoder_says_the_answer_is_a_table_or_a_fault(own_model, folder, cli):
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
