import pytest

from ratecli.config.experiment import load_experiment
from ratecli.errors import FaultError


@pytest.fixture
def load(tmp_path):
    """The experiment of a text, through a real file."""

    def from_text(text, *overrides):
        path = tmp_path / "exp.yaml"
        path.write_text(text, encoding="utf-8")
        return load_experiment(path, overrides)[0]

    return from_text


@pytest.fixture
def faults_of(load):
    """The faults of a text, none of which may be without a sentence."""

    def from_text(text, *overrides):
        with pytest.raises(FaultError) as caught:
            load(text, *overrides)
        assert caught.value.exit_code == 2
        assert all("\0" not in fault.message for fault in caught.value.faults)
        return caught.value.faults

    return from_text
