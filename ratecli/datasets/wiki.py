"""Comments of Wikipedia's talk pages, toxic or not, and the two stand-ins for them.

The protected group are the comments with 'gay' in them, in any case and inside any word.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets.columns import equals_indicator, with_text
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table
from ratecli.datasets.texts import hashed_counts, mean_vectors

IDENTITY_TERM = "gay"
PART_NAMES = {"train": "train", "dev": "validation", "test": "test"}


def prepare(raw: Raw) -> Table:
    """The corpus: a comment is toxic if more than half of its annotators said so."""
    comments = pd.read_csv(raw.paths["toxicity_annotated_comments.tsv"], sep="\t")
    given = pd.read_csv(raw.paths["toxicity_annotations.tsv"], sep="\t")
    toxic = given.groupby("rev_id")["toxicity"].mean() > 0.5
    known = comments[comments["rev_id"].isin(toxic.index)].reset_index(drop=True)
    text = known["comment"].str.replace("NEWLINE_TOKEN|TAB_TOKEN", " ", regex=True)
    columns = {name: known[name] for name in ("rev_id", "year", "ns", "sample")}
    part = known["split"].map(PART_NAMES).to_numpy(dtype=str)
    return _table(raw, text, toxic.loc[known["rev_id"]].to_numpy(), columns, part)


def prepare_standin(raw: Raw) -> Table:
    """Real comments, few of them, chosen for their identity terms."""
    read = pd.read_csv(raw.paths["toxicity_nonfuzzed_testset.csv"], keep_default_na=False)
    toxic = read["toxic"].astype(str).eq("True").to_numpy()
    return _table(raw, read["comment"], toxic, {"rev_id": read["rev_id"]})


def prepare_madlibs(raw: Raw) -> Table:
    """Sentences filled into templates."""
    read = pd.read_csv(raw.paths["bias_madlibs_77k.csv"], keep_default_na=False)
    toxic = read["Label"].eq("BAD").to_numpy()
    return _table(raw, read["Text"], toxic, {"template": read["Template"]})


def _table(
    raw: Raw,
    text: pd.Series,
    toxic: NDArray[np.bool_],
    columns: Mapping[str, pd.Series],
    part: NDArray[np.str_] | None = None,
) -> Table:
    """The texts themselves are left out: rules have no use for them."""
    frame = with_text(
        pd.DataFrame(columns).assign(
            mentions_gay=np.where(
                text.str.lower().str.contains(IDENTITY_TERM, regex=False), "yes", "no"
            ),
            toxic=np.where(toxic, "yes", "no"),
        )
    )
    vectors = raw.paths.get("vectors")
    texts = text.tolist()
    return Table(
        frame=frame,
        features=(),
        label=equals_indicator(frame["toxic"], "no"),
        part=part,
        matrix=hashed_counts(texts) if vectors is None else mean_vectors(texts, vectors),
        counts=vectors is None,
        digest=raw.digest,
        files=raw.files,
    )
