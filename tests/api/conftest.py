import pytest
from applicants import people


@pytest.fixture(scope="session")
def loans():
    return people(600)
