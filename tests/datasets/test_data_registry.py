import json

import pytest

from ratecli.config.dataset import DatasetSpec
from ratecli.datasets import registry
from ratecli.datasets.sources import SOURCES


def test_listed_sizes_are_those_of_the_files():
    sizes = {row["name"]: row["bytes"] for row in registry.list_sources()}
    assert (sizes["adult"], sizes["loans"], sizes["wiki"]) == (5_977_458, 0, None)


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
    stand_in = name in {"wiki_standin", "madlibs"}
    assert ("not comparable" in source.stand_in) == stand_in
    assert source.notes.startswith("STAND-IN for `wiki`") == stand_in
    assert source.summary.startswith("stand-in for wiki") == stand_in


def settled(**options: object) -> dict[str, object]:
    return registry.settle_options(DatasetSpec.model_validate({"source": "loans", **options}))


def test_options_have_defaults_and_enter_the_digest():
    assert settled(split={"test": 0.5}) == {"preparation": "plain", "rows": 4000, "seed": 0}
    loans = registry.find_source("loans")
    digests = [registry.source_digest(loans, settled(rows=rows), ()) for rows in (4000, 4001)]
    assert digests[0] == registry.source_digest(loans, settled(), ()) != digests[1]
