"""A file with every section, and with options of every kind of plot."""

FULL_FILE = """\
name: full
description: What does the 80% rule cost?
datasets:
  adult: {source: adult, preparation: narasimhan2019, split: {validation: 1/3}}
  mine:
    path: mine.csv
    label: y
    positive: 1
    drop: [sex]
    split: {train: 0.7, test: 3/10, stratify: [sex], seed: 3}
groups: {women: sex = Female, men: sex != Female}
objective: kl(base_rate, positive_rate[women]) + kl(base_rate, positive_rate[men])
constraints: {ratio: 'positive_rate[men] <= target * positive_rate[women]'}
regularization: {l2: 1/n}
deployed: {algorithm: base}
sweep: {a: [1, 2], b: [x, true], zip: [[a, b]], include: [{a: 3, b: y}], exclude: [{a: 1}]}
algorithms:
  - unconstrained: {as: base}
  - majorize: {iterations: 8, holds: new_rows, level: 0.9, sweep: {target: 'linspace(1, 6.5, 96)'}}
  - three_player: {steps: 5000, tune: {learning_rate: [0.001, 1], multiplier_rate: [0.01, 0.1]}}
seeds: [3, 1]
limits: {time: 10 min, memory: 2 GiB}
trial_seconds: {base: 0.5, majorize: {adult: 30, mine: 2}}
metrics: {ratio: 'positive_rate[men] / positive_rate[women]', error: error}
report:
  tables: [{rows: [algorithm, variant], columns: [ratio, violation.ratio], file: t}]
  plots:
    - {kind: tradeoff, x: ratio, y: error, lines: [base], file: figure2, split: [train, test]}
    - {kind: tradeoff, x: target, y: ratio, algorithms: [majorize], variants: [a], diagonal: true}
    - {kind: convergence, x: seconds, by: target, title: On the way}
    - {kind: posteriors, variant: drawn, column: job, at: {target: [0.5, 1], b: [x]}, seed: 3}
    - {kind: group_shares, split: validation, title: Filtered rows}
    - {kind: guarantee, x: target, y: error, truth: train, constraint: ratio, variants: [a]}
expect:
  - {algorithm: three_player, variant: stochastic, metric: objective, paper: 0.014, source: T3}
  - {algorithm: base, split: train, metric: violation.ratio, at_most: 0, within: ci, b: true}
"""
