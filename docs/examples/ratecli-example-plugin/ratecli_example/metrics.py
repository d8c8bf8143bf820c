"""Two metrics: one is written in the language of rules, the other is a new rate."""

from ratecli.rates.table import Composite, Rate

INFORMEDNESS = Composite(
    "tpr + tnr - 1",
    "how much better than chance decisions tell positive from negative rows (Youden's J)",
)

WITHDRAWN = Rate(
    name="withdrawn",
    among="deployed_yes",
    yes="none",
    no="all",
    means="rows that the deployed model decided yes, decided no",
)
