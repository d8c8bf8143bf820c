"""Fit FairGBM; run by an interpreter that has it (see `ratecli_peers.other_python`)."""

import json
import sys
from pathlib import Path

import pandas as pd
from fairgbm import FairGBMClassifier

folder = Path(sys.argv[1])
facts = json.loads((folder / "facts.json").read_text())
rows = pd.read_parquet(folder / "rows.parquet")
X = rows.drop(columns=["label", "group"]).to_numpy()
model = FairGBMClassifier(**facts["options"], n_jobs=1, random_state=facts["seed"])
own = {"constraint_group": rows["group"].to_numpy()}
model.fit(X, rows["label"].to_numpy(), **own, categorical_feature=facts["categories"] or "auto")
chances = model.predict_proba(X)[:, -1]
pd.DataFrame({"decision": (chances > 0.5).astype(float)}).to_parquet(folder / "decisions.parquet")
(folder / "model.json").write_text(json.dumps(model.booster_.model_to_string()))
