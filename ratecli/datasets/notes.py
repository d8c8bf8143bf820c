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

`preparation: narasimhan2019` has the 122 features of 0 and 1 of the code released with Narasimhan,
Cotter and Gupta (2019), a sparse matrix used as it is: age (quartiles of adult.data), capital_gain,
capital_loss, hours_per_week and education_num in four bins each, then the eight categories. A bin does
not hold its lower end: the 395 + 200 people of 17 have no age bin. All columns can be used in rules.
`split: {validation: 1/3}` gives 21,707 rows to train, 10,854 to tune and the 16,281 of adult.test.

`preparation: narasimhan2019_as_published` repeats a slip of that code, by which its numbers LEAK: train
and validation rows come from adult.test, and all of adult.test is the test part. Every test row was
trained or tuned on; adult.data gives the age quartiles only. The rows of adult.test are in the table
twice, as train and as test; `split: {validation: 1/3}` gives 10,854, 5,427 and 16,281. Use it to
compare with the published numbers, never to say how well a method does.
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

`preparation: narasimhan2019` has the 31 features of the code released with Narasimhan, Cotter and
Gupta (2019), a matrix used as it is, without any scaling: days_b_screening_arrest, -30 to 30; zeros and
ones for c_charge_degree (2), race (6), score_text (3), sex (2) and age (6 bins up to 24, 29, 35, 45, 52,
96); steps, of which a row has all up to its own, for decile_score (6: up to 1, 3, 5, 7, 9, 10) and
priors_count (5: up to 1, 3, 5, 9, 38; none for 0). COMPAS's own score is a feature. Its parts, a third
to test and a third of the rest to tune, each rounded up, are 2,742, 1,372 and 2,058 rows; say so in
rows, `split: {validation: 1372/6172, test: 2058/6172}`: {validation: 2/9, test: 1/3} rounds otherwise.
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

COMMUNITIES = """\
communities.data, 1,994 rows. Positive are the 583 with ViolentCrimesPerPop above its 70th percentile
over all rows. No official split; `split: {validation: 2/9, test: 1/3}` is that of Narasimhan, Cotter and
Gupta (2019), 886, 443 and 665 rows.

features     the 122 attributes (numbers, all between 0 and 1 in the file), and black_share
black_share  high where racepctblack is above its median over all rows (970 rows), else low
other        ViolentCrimesPerPop, the label; state, communityname; fold, the file's own split in ten

23 attributes have gaps ('?'), 22 of them, on the police, in 1,675 rows: a missing number becomes the
mean of the training rows. The codes county and community are left out.
"""

LAW = """\
The LSAC National Longitudinal Bar Passage Study (Wightman 1998). The original is a SAS file,
http://www.seaphe.org/databases/LSAC/LSAC_SAS.zip, whose bytes are not known here: this is a CSV export
of the full table of 27,478 students, found in a public repository, pinned by its sha256. It gives
Wightman's published counts. Left out are 4,375 students without a result and 17 without a race;
of the 23,086 others 21,886 passed, of 1,368 black ones 1,062. No official split.

features  decile1, decile1b, decile3 (ranks in the first and third year of law school), lsat, ugpa,
          dob_yr (year of birth, two digits), fam_inc (1 to 5): numbers; sex, tier (1 to 6, of the
          law school), parttime (yes, no): categories
other     race, no feature; pass_bar holds the label, yes or no
race      asian, black, hisp, other, white
sex       female, male

A missing number becomes the mean of the training rows, a missing category one of its own. These are
nearly the features of later code on the same task, which dropped every row with a gap and added `age`,
here unusable (it is negative).

Not in the table: bar, bar1, bar2, bar1_yr, bar2_yr, which hold the result or follow from it; zfygpa and
zgpa, known before the exam, the grades behind the ranks; grad and dropout, how the studies ended, the
same for nearly all who took the exam; index604 and indxgrp, made from lsat and ugpa; fulltime, cluster
and others that repeat a column.

Versions of this table in which pass_bar means passing at the first attempt, or in which no result
counts as failing, have other numbers.
"""

GPA = """\
43,303 students of the Federal University of Rio Grande do Sul, 20,263 of them with a GPA of at least
3.0. No official split. The original is doi:10.7910/DVN/O35FW8; this is the copy in the repository of
the Seldonian Toolkit, which keeps the order of its rows and rounds the GPA to 5 decimals.

features  the nine scores of the entrance exam: Physics, Biology, History, Second_Language, Geography,
          Literature, Portuguese_and_Essay, Math, Chemistry
other     M and F, 1 or 0; GPA, the grade point average of the first three semesters, 0 to 4
sex       Female (20,968), Male (22,335): M and F again, as a word

`preparation: classification` (the default) has the label GPA >= 3.0, also as GPA_class, 1 or 0.
`preparation: regression` has the GPA itself as the label, a number from 0 to 4: goals speak of mse and
mean_error there, and what needs two classes is refused.

The toolkit's tutorials take the first 40% of the rows to select a candidate and the other 60% to test
it; `split: {train: 1}` with `safety: {fraction: 0.6, order: positional}` does the same.
"""

_TEXTS = """\
toxic          yes, no: the label
mentions_gay   yes where 'gay' is in the text, in any case and inside any word; no elsewhere
features       TF-IDF of words hashed to 16,384 numbers, a sparse matrix: counts of words in lower case,
               weighted by their rarity in the training rows, each row of length 1. Or, with
               `vectors: glove.6B.100d.txt` (a file of yours, a word and its numbers a line; not
               downloaded), the mean of the vectors of a text's words, unscaled

The texts, offensive ones among them, are not in the table.
"""

WIKI = f"""\
Wikipedia Talk Labels: Toxicity, as split by Dixon et al. (2018): 95,692 rows to train, 32,128 to tune,
31,866 to test (official split). Toxic are comments that more than half of their annotators, about ten,
found so; the others, some 90%, are positive.

{_TEXTS}other          rev_id, year, ns, sample

No sha256 of the two files is known here: nobody who wrote this has seen their bytes, and the counts
above are those of the literature. `ratecli fetch wiki` brings them, refuses them (E403), and says what
to write to SHA256SUMS beside them if you trust what came; from then on they are verified as any other.
"""

WIKI_STANDIN = f"""\
STAND-IN for `wiki`: toxicity_nonfuzzed_testset.csv, 1,492 comments of Wikipedia's talk pages chosen for
the identity terms in them, 248 toxic, 160 with 'gay'. Real texts, but few, and from another
distribution: results say nothing about numbers published on the corpus. No official split.

{_TEXTS}other          rev_id
"""

MADLIBS = f"""\
STAND-IN for `wiki`: bias_madlibs_77k.csv, 76,564 sentences that templates and lists of words gave, half
of them toxic; 1,514 with 'gay', half of which are toxic, too. Made to measure bias, not to train on:
results say nothing about numbers published on the corpus. No official split.

{_TEXTS}other          template
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
