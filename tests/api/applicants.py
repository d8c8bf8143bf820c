from entries import generate_loans

PARITY = "positive_rate[sex = Female] >= kappa * positive_rate[sex = Male]"


def people(rows, seed=0):
    """Loan applicants as scikit-learn has them: X with text and numbers, y of words."""
    frame = generate_loans(rows, seed).frame
    return frame.drop(columns="repaid"), frame["repaid"]
