"""What ratecli knows of the data set. It imports nothing slow: listings read it."""

from ratecli.datasets.source import Option, Source

HOUSING = Source(
    name="housing",
    summary="generated: who of those that wait for a home will stay in it?",
    preparations={"plain": "ratecli_example.applicants:prepare"},
    rows=1000,
    label="stayed = yes",
    sensitive=("town",),
    licence="generated here; no rights reserved",
    notes=(
        "Applicants for a home. Features: `years` they have waited, `rooms` they need, monthly "
        "`income` in hundreds, and the `town` they come from (old or new), which should not affect "
        "decisions."
    ),
    options={
        "rows": Option(default=1000, least=50, most=1_000_000),
        "seed": Option(default=0, least=0, most=2**63 - 1),
    },
)
# A source with files sets `files=(RemoteFile(name, url, sha256, size),)`: `ratecli fetch` downloads
# and verifies them, and the preparation finds them as `raw.paths[name]`.
