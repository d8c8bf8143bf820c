"""UCI's Communities and Crime, with the label and the group of Narasimhan et al. (2019).

communities.data, 1,994 rows. Positive are the 583 with ViolentCrimesPerPop above its 70th
percentile over all rows. No official split; `split: {validation: 2/9, test: 1/3}` is that of
Narasimhan, Cotter and Gupta (2019): 886 training, 443 validation and 665 test rows.

features     the 122 attributes (numbers, all between 0 and 1 in the file), and black_share
black_share  high where racepctblack is above its median over all rows (970 rows), else low
other        ViolentCrimesPerPop, the label; state, communityname; fold, the file's
             own 10-fold split

23 attributes have missing values ('?'), 22 of them, on the police, in 1,675 rows. A missing number
is replaced by the mean of the training rows. The codes county and community are left out.
"""

from __future__ import annotations

from ratecli.datasets.lazy import Table, columns, np, pd
from ratecli.datasets.source import Raw, RemoteFile, Source, notes_of

SOURCE = Source(
    name="communities",
    summary="communities of the USA: is violent crime above the 70th percentile?",
    preparations={"plain": f"{__name__}:prepare"},
    rows=1994,
    label="ViolentCrimesPerPop above its 70th percentile",
    sensitive=("black_share",),
    licence="CC BY 4.0",
    citation="Redmond, M. (2009). Communities and Crime. UCI Machine Learning Repository.",
    notes=notes_of(__doc__),
    files=(
        RemoteFile(
            name="communities.data",
            url="https://archive.ics.uci.edu/static/public/183/communities+and+crime.zip",
            sha256="09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
            size=1_102_815,
            members=("communities.data",),
        ),
    ),
)

KEY_COLUMNS = ("state", "county", "community", "communityname", "fold")
"""Columns that identify a community; county and community are codes, dropped as mostly missing."""

ATTRIBUTES = tuple(
    """
population householdsize racepctblack racePctWhite racePctAsian racePctHisp agePct12t21
agePct12t29 agePct16t24 agePct65up numbUrban pctUrban medIncome pctWWage pctWFarmSelf pctWInvInc
pctWSocSec pctWPubAsst pctWRetire medFamInc perCapInc whitePerCap blackPerCap indianPerCap
AsianPerCap OtherPerCap HispPerCap NumUnderPov PctPopUnderPov PctLess9thGrade PctNotHSGrad
PctBSorMore PctUnemployed PctEmploy PctEmplManu PctEmplProfServ PctOccupManu PctOccupMgmtProf
MalePctDivorce MalePctNevMarr FemalePctDiv TotalPctDiv PersPerFam PctFam2Par PctKids2Par
PctYoungKids2Par PctTeen2Par PctWorkMomYoungKids PctWorkMom NumIlleg PctIlleg NumImmig
PctImmigRecent PctImmigRec5 PctImmigRec8 PctImmigRec10 PctRecentImmig PctRecImmig5 PctRecImmig8
PctRecImmig10 PctSpeakEnglOnly PctNotSpeakEnglWell PctLargHouseFam PctLargHouseOccup
PersPerOccupHous PersPerOwnOccHous PersPerRentOccHous PctPersOwnOccup PctPersDenseHous
PctHousLess3BR MedNumBR HousVacant PctHousOccup PctHousOwnOcc PctVacantBoarded PctVacMore6Mos
MedYrHousBuilt PctHousNoPhone PctWOFullPlumb OwnOccLowQuart OwnOccMedVal OwnOccHiQuart RentLowQ
RentMedian RentHighQ MedRent MedRentPctHousInc MedOwnCostPctInc MedOwnCostPctIncNoMtg
NumInShelters NumStreet PctForeignBorn PctBornSameState PctSameHouse85 PctSameCity85
PctSameState85 LemasSwornFT LemasSwFTPerPop LemasSwFTFieldOps LemasSwFTFieldPerPop LemasTotalReq
LemasTotReqPerPop PolicReqPerOffic PolicPerPop RacialMatchCommPol PctPolicWhite PctPolicBlack
PctPolicHisp PctPolicAsian PctPolicMinor OfficAssgnDrugUnits NumKindsDrugsSeiz PolicAveOTWorked
LandArea PopDens PctUsePubTrans PolicCars PolicOperBudg LemasPctPolicOnPatr LemasGangUnitDeploy
LemasPctOfficDrugUn PolicBudgPerPop
""".split()
)
CRIME = "ViolentCrimesPerPop"
HIGH_CRIME = 70
"""Percentile of violent crimes, over all rows, above which the label is positive."""


def prepare(raw: Raw) -> Table:
    read = pd.read_csv(
        raw.paths["communities.data"],
        names=[*KEY_COLUMNS, *ATTRIBUTES, CRIME],
        header=None,
        na_values=["?"],
        keep_default_na=False,
    )
    black, crime = columns.as_float_array(read["racepctblack"]), columns.as_float_array(read[CRIME])
    share = pd.Series(np.where(black > np.median(black), "high", "low"), name="black_share")
    return raw.table(
        pd.concat([read.drop(columns=["county", "community"]), share], axis=1),
        (crime > np.percentile(crime, HIGH_CRIME)).astype(np.float64),
        features=(*ATTRIBUTES, "black_share"),
    )
