"""What `ratecli show NAME` says about each data set: columns, values, pitfalls, choices made."""

from __future__ import annotations

ADULT = """\
Official train file (32,561 rows, 7,841 positive) and test file (16,281 rows, 3,846 positive).

features  age, education_num, capital_gain, capital_loss, hours_per_week (numbers);
          workclass, education, marital_status, occupation, relationship, race, sex,
          native_country (categories)
other     fnlwgt, the census's sampling weight, is no feature and no row weight;
          income holds the label, '>50K' or '<=50K'
sex       Female, Male
race      Amer-Indian-Eskimo, Asian-Pac-Islander, Black, Other, White

A '?' (workclass, occupation, native_country) is a missing value and becomes a category of its own.
The header line of the test file and the full stop after its labels are taken off. Column names have
'_' for '-'.

`preparation: churn` has a deployed model to be compared with, after Goh et al. (2016), section 4.2
(how it is made: docstring of ratecli/datasets/churn.py). Both files are one sample, with no official
split; 20% of it, older data, trained the deployed model and are left out.

set             d1: labelled, taken near the deployed model's boundary; d2: labelled, drawn at random;
                d3: drawn at random, labels hidden (income is empty)
deployed        the deployed model's decision, 0 or 1; deployed_score is its log-odds. It sees age,
                education, marital_status, relationship, race, sex and native_country only
features        a ready-made matrix: bins of numbers, categories, pairs of both, in which a row is the
                same number, 1/41, wherever it has a feature: they add up to 1

`split: {test: 0.2, stratify: [set]}` cuts each set alike.
"""

A9A = """\
The rows of `adult` in the same order, same labels, same official parts, each number cut into
quantiles: 123 features of 0 and 1, a sparse matrix used as it is (no encoding, no scaling). The test
file stops at index 122; it has 123 features all the same.

The matrix is joined by columns to select rows by; each says again what features hold.

sex            Female, Male                                              features 72, 73
race           White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black          67-71
age_bucket     17-25, 26-32, 33-40, 41-49, 50-90                                      1-5
education_top  yes, no: 13 or more on the scale of education_num                       39

Feature 39 is the group that the published code of Goh et al. (2016) takes for men; their Figure 2
matches it rather than sex.
"""

COMPAS = """\
ProPublica's filter leaves 6,172 of 7,214 rows, 2,809 of them charged again: an arrest within 30 days
of the screening, is_recid not -1, c_charge_degree not 'O', score_text not 'N/A'. No official split.

features  age, juv_fel_count, juv_misd_count, juv_other_count, priors_count (numbers);
          sex, race, c_charge_degree (categories)
other     age_cat, days_b_screening_arrest; decile_score and score_text, COMPAS's own prediction;
          two_year_recid, the label
sex       Female, Male
race      African-American, Asian, Caucasian, Hispanic, Native American, Other

The file names decile_score and priors_count twice with equal values; the first of each is read.
Names, dates and case numbers are left out.
"""

BANK = """\
bank-full.csv, 45,211 rows, 5,289 positive. No official split.

features  age, balance, day, duration, campaign, pdays, previous (numbers);
          marital, education, default, housing, loan, contact, month, poutcome (categories)
other     job, a sensitive column of 12 values, is no feature; y holds the label, yes or no

'unknown' is a category like any other; pdays is -1 for a client not called before. duration is known
only once the call is over: fine for comparing algorithms, not for predicting.

`preparation: churn` has a deployed model to be compared with, after Goh et al. (2016), section 4.2
(how it is made: docstring of ratecli/datasets/churn.py). 20% of the rows, older data, trained the
deployed model and are left out.

set             d1: labelled, taken near the deployed model's boundary; d2: labelled, drawn at random;
                d3: drawn at random, labels hidden (y is empty)
deployed        the deployed model's decision, 0 or 1; deployed_score is its log-odds. It sees age,
                marital, education, default, balance, housing, loan and duration only
features        a ready-made matrix: bins of numbers, categories, pairs of both, in which a row is the
                same number, 1/43, wherever it has a feature: they add up to 1

`split: {test: 0.2, stratify: [set]}` cuts each set alike.
"""

LOANS = """\
A seeded generator, so needing no download; options rows (4000) and seed (0). No official split.

features  income, debt, savings (carry information on the label);
          age, amount, purpose, region (carry none, given sex); sex
other     repaid holds the label, yes or no
sex       Female, Male

Women are 45% of the applicants; 35% of them repay, 65% of men. The best rule of all picks women 0.47
times as often as men, and for any demanded ratio the least possible error is known in closed form
(the model and the formulas: docstring of ratecli/datasets/loans.py); the best rule is linear in
(features, sex). Plots of error against positive_rate[sex = Female] / positive_rate[sex = Male] show it.

The other preparations add the column approved, no feature: what a lender decides by the rule in use,
1 where the income is at least 48. It errs in 26% of all cases, the best rule in 17%.

deployed    all applicants; `deployed: {column: approved}` makes the rule in use the deployed model
unlabelled  the same before any loan falls due: no labels, and no column repaid
egregious   the old rule's needless mistakes: it decided against the label, the best rule does not.
            About one in seven of `rows`

Equal rows and seed are the same applicants in every preparation: data sets of one experiment that
are to be independent need a seed each.
"""

CLICKS = """\
A seeded generator, so needing no download; options rows (254609) and seed (0). No official split:
`split: {test: 0.2, stratify: [set]}` cuts each set alike. It stands for the churn data of Goh et al.
(2016), section 4.2, which are not public, and keeps their shape (the population: docstring of
ratecli/datasets/clicks.py). Other `rows` shrink all three sets alike.

set             d1: 131,840 rows, labelled, taken near the deployed model's boundary;
                d2: 53,877 rows, labelled, drawn at random; d3: 68,892 rows, likewise, labels hidden
deployed        the deployed model's decision, 0 or 1; deployed_score is its log-odds
f01 ... f31     31 numbers that all say something of the label, some skewed, some with heavy tails
clicked         the label, yes or no, empty where set = d3
features        a ready-made matrix of 30,008 columns: 8 bins of each number, and all pairs of bins of
                two numbers. A row is 1/496 in its 496 features, 0 elsewhere

Population, deployed model and bins are the same for every `seed`; no label but those of older rows,
outside the table, went into them. 28% of d2 are positive; the best rule errs on about 13% of such rows.
A score is the mean of 496 weights. So scaled, the paper's lambda of 1e-7 (`l2: 5e-8`) is the power of
10 that suits a plain SVM best, as it was the best for theirs. All rows together take 1.5 GB, twice
that while they are made and divided.
"""
