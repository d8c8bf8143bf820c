from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ratecli.datasets import registry
from ratecli.datasets.entry import DatasetEntry
from ratecli.datasets.sources import SOURCES
from ratecli.errors import FaultError


def codes(options: dict[str, object]) -> list[str]:
    with pytest.raises(FaultError) as caught:
        registry.settle_options(DatasetEntry.of(options))
    assert all(fault.help for fault in caught.value.faults)
    return [fault.code for fault in caught.value.faults]


def test_listings_import_nothing_heavy():
    program = (
        "import sys; from ratecli.datasets import registry;"
        "registry.list_sources(); registry.describe_source('adult');"
        "print([m for m in ('numpy', 'pandas', 'scipy', 'sklearn', 'requests') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_is_complete(name: str):
    source = SOURCES[name]
    for preparation in source.preparations:
        assert callable(registry.import_function(source.preparations[preparation]))
    if source.frontier:
        assert callable(registry.import_function(source.frontier.function))
    for file in source.files:
        assert len(file.sha256) == (64 if file.size else 0)
        assert file.url.startswith("https://")
    described = registry.describe_source(name)
    assert described["notes"]
    assert described["licence"]
    json.dumps(described)


def test_stand_ins_say_so_wherever_they_are_shown():
    stand_ins = [source for source in SOURCES.values() if source.stand_in]
    assert {source.name for source in stand_ins} == {"wiki_standin", "madlibs"}
    for source in stand_ins:
        assert source.summary.startswith("stand-in for wiki")
        assert source.notes.startswith("STAND-IN for `wiki`")
        assert "not comparable" in registry.describe_source(source.name)["stand_in"]


def test_size_is_told_only_where_it_is_known():
    sizes = {row["name"]: row["bytes"] for row in registry.list_sources()}
    assert (sizes["adult"], sizes["loans"], sizes["wiki"]) == (5_977_458, 0, None)


def test_settle_fills_defaults():
    settled = registry.settle_options(DatasetEntry.of({"source": "loans", "split": {"test": 0.5}}))
    assert settled == {"preparation": "plain", "rows": 4000, "seed": 0}


def test_digest_depends_on_options_only():
    loans = registry.find_source("loans")
    plain = registry.source_digest(
        loans, registry.settle_options(DatasetEntry.of({"source": "loans"})), ()
    )
    assert plain == registry.source_digest(
        loans, registry.settle_options(DatasetEntry.of({"source": "loans", "rows": 4000})), ()
    )
    assert plain != registry.source_digest(
        loans, registry.settle_options(DatasetEntry.of({"source": "loans", "rows": 4001})), ()
    )


def test_unknown_source_suggests():
    with pytest.raises(FaultError) as caught:
        registry.find_source("adlut")
    (fault,) = caught.value.faults
    assert fault.code == "E201"
    assert "did you mean 'adult'?" in str(fault.help)


def test_wrong_options():
    assert codes({"source": "adult", "rows": 5}) == ["E101"]
    assert codes({"source": "adult", "preparation": "plane"}) == ["E104"]
    assert codes({"source": "adult", "vectors": "glove.txt"}) == ["E101"]
    assert codes({"source": "loans", "rows": 1}) == ["E104"]
    assert codes({"source": "loans", "rows": 1, "seed": -1, "label": "x"}) == [
        "E101",
        "E104",
        "E104",
    ]
