from data_folder import data  # noqa: F401  a fixture
