"""UCI's Communities and Crime, with the label and the group of Narasimhan et al. (2019)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ratecli.datasets import columns
from ratecli.datasets.source import Raw
from ratecli.datasets.table import Table

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
