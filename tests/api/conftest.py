import pytest
from applicants import people
from bitmaps import leave_out_bitmaps


@pytest.fixture(autouse=True)
def vectors(monkeypatch):
    """Reports of runs have no bitmaps."""
    leave_out_bitmaps(monkeypatch)


@pytest.fixture(scope="session")
def loans():
    return people(600)
