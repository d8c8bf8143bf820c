"""Sets of rules for random problems on groups a, b, c."""

FAMILIES = {
    "nothing": {},
    "parity": {"p": "positive_rate[g=a] >= 0.9 * positive_rate[g=c]"},
    "recall": {"r": "recall >= 0.85"},
    "fpr": {"f": "fpr <= 0.1"},
    "precision": {"p": "precision >= 0.9"},
    "coverage": {"c": "0.2 <= positive_rate <= 0.3"},
    "odds": {"t": "max_gap(tpr, by=g) <= 0.05", "f": "max_gap(fpr, by=g) <= 0.05"},
    "churn": {"c": "churn <= 0.35"},
    "four": {
        "p": "positive_rate[g=a] >= 0.8 * positive_rate[g=c]",
        "r": "recall >= 0.6",
        "f": "fpr <= 0.25",
        "c": "churn <= 0.4",
    },
}
