"""Features of a kernel: `features: {kernel: rbf, ...}`."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from people import read

from ratecli import load_results
from ratecli.datasets.encode import Encoder, KernelMap, default_gamma

FILE = """
name: ring
datasets:
  rows: {path: ring.csv, label: y, positive: 1, drop: [g]FEATURES}
objective: error
constraints: {parity: "max_gap(positive_rate, by=g) <= 0.1"}
algorithms: [majorize: {iterations: 3}]
"""
MODEL = "results/ring/models/majorize-seed=0"


def ring(n: int = 400) -> pd.DataFrame:
    """Rows inside a ring are positive: no linear model is better than a constant."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)).round(3)
    rows = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": rng.choice(["u", "v"], n)})
    rows["g"] = rng.choice(["x", "y"], n)
    return rows.assign(y=((X**2).sum(axis=1) < 1.4).astype(int))


@pytest.fixture
def run(cli, folder):
    ring().to_csv(folder / "ring.csv", index=False)

    def run(features: str) -> dict[str, float]:
        more = f", features: {features}" if features else ""
        (folder / "ring.yaml").write_text(FILE.replace("FEATURES", more))
        assert cli("run", "ring.yaml", "-q").code == 0
        found = load_results("results/ring").metrics
        kept = found[(found["split"] == "test")]
        return dict(zip(kept.metric, kept.value, strict=True))

    return run


def test_majorize_on_a_kernel_learns_a_ring(run):
    assert run("")["error"] > 0.35
    assert run("{kernel: rbf, components: 100}")["error"] < 0.2


def test_stored_models_decide_alike_everywhere(run, cli):
    run("{kernel: rbf, components: 50, columns: [b, c, a]}")
    known = read(cli("predict", MODEL, "ring.csv").out).decision
    export = ("export", MODEL, "--format")
    assert cli(*export, "sklearn", "-o", "m.skops").code == 0
    from skops.io import load  # noqa: PLC0415

    found = load("m.skops", trusted=["numpy.dtype"]).predict(ring())
    assert found.tolist() == known.tolist()
    refused = cli(*export, "json")
    assert refused.code == 2
    assert "--format json cannot represent features of a kernel" in refused.err
    assert cli(*export, "card", "-o", "card.md").code == 0
    assert "50 random features of the kernel exp(-" in Path("card.md").read_text("utf-8")
    onnx = pytest.importorskip("onnxruntime")
    assert cli(*export, "onnx", "-o", "m.onnx").code == 0
    rows = ring()
    values = {name: rows[[name]].to_numpy(object if name == "c" else float) for name in "abc"}
    (decided, *_) = onnx.InferenceSession("m.onnx").run(None, values)
    assert decided.tolist() == known.tolist()


def test_the_kernel_is_part_of_the_key(run):
    run("{kernel: rbf, components: 20}")
    encoders = [json.loads(Path(MODEL, "encoder.json").read_text())["kernel"]]
    run("{kernel: rbf, components: 20, gamma: 0.7}")
    encoders.append(json.loads(Path(MODEL, "encoder.json").read_text())["kernel"])
    first, second = encoders
    assert first["gamma"] != second["gamma"] == 0.7
    assert first["seed"] == second["seed"]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("{kernel: poly}", "'poly' is not a choice for 'kernel'"),
        ("{kernel: rbf, component: 5}", "did you mean 'components'?"),
        ("{kernel: rbf, columns: [a, d]}", "'d' under 'features' is not a column"),
        (
            "{kernel: rbf}, stream: true",
            "'features: {kernel: ...}' cannot be combined with 'stream'",
        ),
        ("a", "'features' must be a list of columns, or {kernel: rbf, ...}"),
    ],
)
def test_wrong_kernels_are_named(cli, folder, features, message):
    ring().to_csv(folder / "ring.csv", index=False)
    (folder / "ring.yaml").write_text(FILE.replace("FEATURES", f", features: {features}"))
    answer = cli("validate", "ring.yaml")
    assert answer.code == 2
    assert message in answer.err


def test_products_of_features_approximate_the_kernel():
    X = np.random.default_rng(0).normal(size=(20, 3))
    Z = KernelMap(0.5, 20_000, 0).transform(X)
    exact = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    assert np.abs(Z @ Z.T - exact).max() < 0.05


def test_default_width_is_that_of_training_rows():
    parts = [np.array([[0.0, 2.0], [0.0, 2.0]]), np.array([[1.0, 1.0]])]
    assert default_gamma(parts) == pytest.approx(1 / (2 * np.vstack(parts).var()))
    assert default_gamma([np.ones((3, 4))]) == 0.25


def test_encoders_with_a_kernel_are_restored():
    stated = {
        "blocks": [{"column": "a", "mean": 0.0, "scale": 1.0}],
        "kernel": {"gamma": 0.5, "components": 3, "seed": 7},
    }
    encoder = Encoder.from_json(stated)
    assert encoder.names == ("rbf1", "rbf2", "rbf3")
    assert encoder.as_json() == stated
    with pytest.raises(ValueError, match="not valid"):
        Encoder.from_json(stated | {"kernel": {"gamma": 0, "components": 3, "seed": 7}})
