"""The package meets ratecli's requirements."""  # noqa: INP001

from ratecli_example.cuts import RandomCuts
from ratecli_example.housing import HOUSING
from ratecli_example.metrics import INFORMEDNESS, WITHDRAWN

from ratecli.conformance import check_dataset, check_metric, check_solver


def test_the_algorithm() -> None:
    check_solver(RandomCuts).require()


def test_the_data_set() -> None:
    check_dataset(HOUSING, offline=True).require()


def test_the_metrics() -> None:
    check_metric(INFORMEDNESS, name="informedness").require()
    check_metric(WITHDRAWN).require()
