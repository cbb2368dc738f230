"""Loaders on small made files of the official layouts, for tables that cannot be passed on and for second layouts."""

import gzip
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lightleak.core.errors import DataError
from lightleak.data.datasets import census, health_heritage, lawschool, load_dataset
from lightleak.data.datasets.bank import TABLE as BANK
from lightleak.data.datasets.diabetes130 import DRUGS, icd9_group
from lightleak.data.schema import Column, TableSchema
from lightleak.data.table import Table


def whole(table: Table) -> pd.DataFrame:
    """Both parts, in an order that does not depend on the split."""
    frame = pd.concat([table.train, table.test])
    return frame.sort_values(list(frame.columns)).reset_index(drop=True)


def random_rows(schema: TableSchema, n_rows: int, seed: int = 0) -> pd.DataFrame:
    """Rows that fit a schema, every category of a short domain among them."""
    rng = np.random.default_rng(seed)

    def draw(column: Column) -> np.ndarray:
        if column.is_numerical:
            return rng.integers(0, 100, n_rows)
        return np.resize(rng.permutation(np.asarray(column.categories, dtype=object)), n_rows)

    return pd.DataFrame({column.name: draw(column) for column in (*schema.columns, schema.label)})


def test_bank_reads_uci_s_semicolons_and_the_reordered_copy_alike(tmp_path: Path) -> None:
    frame = random_rows(BANK.schema, 30)
    for name, order, separator in (("uci", list(frame), ";"), ("copy", sorted(frame), ",")):
        (tmp_path / name / "bank").mkdir(parents=True)
        # UCI quotes every string.
        frame[order].to_csv(tmp_path / name / "bank" / "bank-full.csv", sep=separator, index=False, quoting=2)
    uci, copy = (load_dataset("bank", tmp_path / name) for name in ("uci", "copy"))
    pd.testing.assert_frame_equal(uci.train, copy.train)
    pd.testing.assert_frame_equal(uci.test, copy.test)
    assert tuple(uci.train.columns) == (*BANK.schema.names, "y")


def test_bank_names_the_column_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "bank").mkdir()
    random_rows(BANK.schema, 30).drop(columns="month").to_csv(tmp_path / "bank" / "bank-full.csv", index=False)
    with pytest.raises(DataError, match=r"columns \['month'\] are missing"):
        load_dataset("bank", tmp_path)


def adult_line(age: int, workclass: str = "Private", weight: int = 77516, salary: str = "<=50K") -> str:
    return (
        f"{age}, {workclass}, {weight}, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, "
        f"0, 40, United-States, {salary}\n"
    )


def test_adult_options_decide_on_gaps_weights_and_duplicates(tmp_path: Path) -> None:
    folder = tmp_path / "adult"
    folder.mkdir()
    train = [adult_line(30), adult_line(30, weight=1), adult_line(31, "?"), adult_line(32, salary=">50K")]
    (folder / "adult.data").write_text("".join(train) + "\n")
    test = [adult_line(30, salary="<=50K."), adult_line(40, salary=">50K.")]
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + "".join(test))

    def rows(**options: object) -> tuple[int, int]:
        table = load_dataset("adult", tmp_path, verify=False, **options)
        return len(table.train), len(table.test)

    assert rows() == (3, 2)
    assert rows(missing="category") == (4, 2)
    assert rows(final_weight=False) == (3, 2)
    # The row of age 30 is repeated in both parts; only the repetition within a part goes.
    assert rows(final_weight=False, duplicates="drop") == (2, 2)
    assert rows(duplicates="drop") == (3, 2)
    table = load_dataset("adult", tmp_path, verify=False, missing="category")
    assert table.train["workclass"].tolist() == ["Private", "Private", "missing", "Private"]
    assert table.test["salary"].tolist() == ["<=50K", ">50K"]
    assert "missing" not in table.schema.column("education").categories


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_census_reads_both_official_files(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "census"
    folder.mkdir()
    frame = random_rows(census.TABLE.schema, 60).replace("missing", "?")
    frame["income"] += "."
    text = "".join(", ".join(map(str, row)) + "\n" for row in frame.itertuples(index=False))
    for name in ("census-income.data", "census-income.test"):
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(text.encode()) if suffix else text.encode())
    table = load_dataset("census", tmp_path, verify=False)
    assert len(table.train) == len(table.test) == 60
    pd.testing.assert_frame_equal(table.train, table.test)
    assert sum(column.width for column in table.schema.columns) == 511
    # 'NA' is an answer to the question on origin, not a gap; '?' is a gap.
    assert "NA" in set(table.train["hispanic-origin"])
    assert "missing" in set(table.train["country-of-birth-self"])
    one = load_dataset("census", tmp_path, verify=False, part="train", instance_weight=False)
    assert (len(one.train), len(one.test)) == (48, 12)
    assert "instance-weight" not in one.schema.names


@pytest.fixture
def heritage(tmp_path: Path) -> Path:
    """Four files in the layout of release 3."""
    rng = np.random.default_rng(3)
    folder = tmp_path / "health-heritage"
    folder.mkdir()
    n = 400
    claims = pd.DataFrame(
        {
            "MemberID": rng.integers(1, 31, n),
            "ProviderID": rng.choice([10, 11, 12, np.nan], n),
            "Vendor": rng.choice([1, 2, np.nan], n),
            "PCP": rng.choice([5, 6, 7], n),
            "Year": rng.choice(["Y1", "Y2", "Y3"], n),
            "Specialty": rng.choice(["Internal", "Surgery", "Laboratory", None], n),
            "PlaceSvc": rng.choice(["Office", "Urgent Care", None], n),
            "PayDelay": rng.choice(["0", "35", "120", "162+"], n),
            "LengthOfStay": rng.choice(["1 day", "2- 4 weeks", None], n),
            "DSFS": rng.choice(["0- 1 month", "11-12 months"], n),
            "PrimaryConditionGroup": rng.choice(["MSC2a3", "AMI", "UTI", "RENAL1", None], n),
            "CharlsonIndex": rng.choice(["0", "1-2", "5+"], n, p=[0.8, 0.15, 0.05]),
            "ProcedureGroup": rng.choice(["EM", "PL", "SUS", None], n),
            "SupLOS": rng.integers(0, 2, n),
        }
    )
    claims.to_csv(folder / "Claims.csv", index=False)
    for file, column, most in (("DrugCount.csv", "DrugCount", "7+"), ("LabCount.csv", "LabCount", "10+")):
        counts = {"MemberID": rng.integers(1, 31, 60), "Year": rng.choice(["Y1", "Y2"], 60), "DSFS": "0- 1 month"}
        pd.DataFrame(counts | {column: rng.choice(["1", "3", most], 60)}).to_csv(folder / file, index=False)
    members = {"MemberID": np.arange(1, 31), "AgeAtFirstClaim": rng.choice(["0-9", "80+", None], 30)}
    pd.DataFrame(members | {"Sex": rng.choice(["F", "M", None], 30)}).to_csv(folder / "Members.csv", index=False)
    return tmp_path


def health_rows_one_by_one(folder: Path) -> pd.DataFrame:
    """The preprocessing spelled out member by member: a slow, obvious reference."""
    claims = pd.read_csv(folder / "Claims.csv", dtype=str)
    drugs = pd.read_csv(folder / "DrugCount.csv", dtype=str)
    labs = pd.read_csv(folder / "LabCount.csv", dtype=str)
    members = pd.read_csv(folder / "Members.csv", dtype=str).set_index("MemberID")

    def number(text: str) -> int:
        return int(text.replace("+", ""))

    rows = []
    for year, member in sorted({(c.Year, c.MemberID) for c in claims.itertuples()}):
        own = claims[(claims.Year == year) & (claims.MemberID == member)]
        row: dict[str, object] = {}
        for name, records in (("LabCount", labs), ("DrugCount", drugs)):
            counts = [number(v) for v in records[(records.Year == year) & (records.MemberID == member)][name]]
            row |= {f"{name}_total": sum(counts), f"{name}_months": len(counts)}
        delays = [number(v) for v in own.PayDelay]
        row |= {
            "no_Claims": sum(not pd.isna(v) for v in own.ProviderID),
            "no_Providers": len(set(own.ProviderID.dropna())),
            "no_Vendors": len(set(own.Vendor.dropna())),
            "no_PCPs": len(set(own.PCP.dropna())),
            "PayDelay_total": sum(delays),
            "PayDelay_max": max(delays),
            "PayDelay_min": min(delays),
        }
        for name, listed in health_heritage.CLAIM_CATEGORIES.items():
            counted = Counter("missing" if pd.isna(v) else v for v in own[name])
            row[name] = max(listed, key=lambda value: (counted[value], -listed.index(value)))
        for name in ("AgeAtFirstClaim", "Sex"):
            row[name] = "missing" if pd.isna(members.loc[member, name]) else members.loc[member, name]
        row["max_CharlsonIndex"] = ">0" if any(v != "0" for v in own.CharlsonIndex) else "=0"
        rows.append(row)
    return pd.DataFrame(rows)


def test_health_heritage_equals_a_row_by_row_reference(heritage: Path) -> None:
    table = load_dataset("health-heritage", heritage)
    expected = health_rows_one_by_one(heritage / "health-heritage")
    got = whole(table)
    assert len(got) > 60
    pd.testing.assert_frame_equal(
        got, expected.sort_values(list(got.columns)).reset_index(drop=True)[list(got.columns)]
    )


def test_health_heritage_has_the_width_of_table_8() -> None:
    schema = health_heritage.TABLE.schema
    assert sum(column.width for column in schema.columns) == 110
    assert (len(schema.columns), len(schema.categorical)) == (17, 6)


@pytest.mark.parametrize(("column", "value"), [("CharlsonIndex", "6"), ("Specialty", "Alchemy")])
def test_health_heritage_refuses_an_unknown_value(heritage: Path, column: str, value: str) -> None:
    path = heritage / "health-heritage" / "Claims.csv"
    pd.read_csv(path, dtype=str).assign(**{column: value}).to_csv(path, index=False)
    with pytest.raises(
        DataError, match=rf"Claims\.csv cannot be read: .*'{column}': expected one of .*got \['{value}'\]"
    ):
        load_dataset("health-heritage", heritage)


def test_law_school_reads_the_official_stata_file_first(tmp_path: Path) -> None:
    folder = tmp_path / "lawschool"
    folder.mkdir()
    frame = random_rows(lawschool.TABLE.schema, 40).astype({"resident": float, "gender": float, "admit": float})
    kept = frame.copy()
    frame.loc[0, "race"] = ""
    frame.loc[1, "gpa"] = np.nan
    frame.loc[2, "admit"] = np.nan
    extra = {"enroll": 1.0, "asian": 0.0, "black": 0.0, "hispanic": 0.0, "white": 1.0, "missingrace": 0.0, "urm": 0.0}
    frame.assign(**extra).to_stata(folder / "lawschs1_1.dta", write_index=False)
    spaced = frame.assign(race=frame["race"].replace("", "  "), **extra).rename(
        columns={"lsat": "LSAT", "race": "Race"}
    )
    spaced.to_csv(folder / "lawschool.csv.gz", index=False)
    stata = load_dataset("lawschool", tmp_path, verify=False)
    expected = lawschool.TABLE.schema.validate(kept.iloc[3:])
    pd.testing.assert_frame_equal(whole(stata), expected.sort_values(list(expected.columns)).reset_index(drop=True))
    (folder / "lawschs1_1.dta").unlink()
    pd.testing.assert_frame_equal(whole(load_dataset("lawschool", tmp_path, verify=False)), whole(stata))


def texas_files(folder: Path, bits: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir(parents=True)
    (folder / "feats").write_text("".join(",".join(map(str, row)) + "\n" for row in bits))
    (folder / "labels").write_text("".join(f"{label}\n" for label in labels))


def test_texas100_reads_bits_as_uint8(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bits, labels = rng.integers(0, 2, (50, 37)), rng.integers(1, 101, 50)
    texas_files(tmp_path / "texas100" / "texas" / "100", bits, labels)
    table = load_dataset("texas100", tmp_path)
    assert table.schema.n_classes == 100
    assert sum(column.width for column in table.schema.columns) == 37
    assert (table.train.dtypes.iloc[:-1] == np.uint8).all()
    got = pd.concat([table.train, table.test])
    together = sorted(map(tuple, np.column_stack([bits, labels]).tolist()))
    assert sorted(map(tuple, got.astype("int64").to_numpy().tolist())) == together
    assert table.schema.validate(table.train).shape == (40, 38)
    # The same files without the archive's folders, and without a last line feed.
    flat = tmp_path / "flat" / "texas100"
    texas_files(flat, bits, labels)
    (flat / "feats").write_bytes((flat / "feats").read_bytes().rstrip(b"\n"))
    pd.testing.assert_frame_equal(load_dataset("texas100", tmp_path / "flat").train, table.train)


@pytest.mark.parametrize(
    ("feats", "labels", "message"),
    [
        ("0,1\n1,2\n", "1\n2\n", "must hold lines of 0 and 1 with commas between them, and nothing else"),
        ("0,1\n1;0\n", "1\n2\n", "must hold lines of 0 and 1 with commas between them, and nothing else"),
        ("0,1\n1,0,1\n", "1\n2\n", "all equally long"),
        ("", "1\n", "all equally long"),
        ("0,1\n1,0\n", "1\n2\n3\n", "must have 2 lines, one per line of feats, got 3"),
        ("0,1\n1,0\n", "0\n2\n", "must hold classes 1 to 100, got 0 to 2"),
        ("0,1\n1,0\n", "one\n2\n", "cannot be read: ValueError"),
    ],
)
def test_texas100_refuses_other_files(tmp_path: Path, feats: str, labels: str, message: str) -> None:
    folder = tmp_path / "texas100"
    folder.mkdir()
    (folder / "feats").write_text(feats)
    (folder / "labels").write_text(labels)
    with pytest.raises(DataError, match=message):
        load_dataset("texas100", tmp_path)


def diabetes_rows() -> pd.DataFrame:
    """Nine encounters of five patients."""
    n = 9
    frame = pd.DataFrame(
        {
            "encounter_id": np.arange(n) + 100,
            "patient_nbr": [1, 1, 2, 3, 3, 3, 4, 5, 5],
            "race": ["Caucasian", "?", "Asian"] * 3,
            "gender": ["Female", "Male", "Unknown/Invalid"] * 3,
            "age": ["[0-10)", "[90-100)", "[50-60)"] * 3,
            "weight": "?",
            "admission_type_id": [1, 2, 8] * 3,
            "discharge_disposition_id": [1, 1, 11, 1, 1, 1, 1, 13, 1],
            "admission_source_id": [1, 7, 26] * 3,
            "time_in_hospital": np.arange(n) + 1,
            "payer_code": ["?", "MC", "FR"] * 3,
            "medical_specialty": ["?", "Surgery-Neuro", "Podiatry"] * 3,
        }
    )
    counts = "num_lab_procedures num_procedures num_medications number_outpatient number_emergency number_inpatient"
    frame = frame.assign(**{name: np.arange(n) for name in counts.split()})
    frame = frame.assign(
        diag_1=["428", "250.02", "?"] * 3, diag_2=["V57", "E885", "401"] * 3, diag_3=["?", "8", "9"] * 3
    )
    frame = frame.assign(number_diagnoses=np.arange(n), max_glu_serum="None", A1Cresult=["None", ">7", "Norm"] * 3)
    frame = frame.assign(**dict.fromkeys((*DRUGS, "examide", "citoglipton"), "No"))
    return frame.assign(change=["No", "Ch", "No"] * 3, diabetesMed="Yes", readmitted=["NO", ">30", "<30"] * 3)


def test_diabetes_reads_the_zip_and_the_unpacked_file_alike(tmp_path: Path) -> None:
    for name in ("zipped", "plain"):
        (tmp_path / name / "diabetes130").mkdir(parents=True)
    text = diabetes_rows().to_csv(index=False)
    (tmp_path / "plain" / "diabetes130" / "diabetic_data.csv").write_text(text)
    with zipfile.ZipFile(tmp_path / "zipped" / "diabetes130" / "dataset_diabetes.zip", "w") as archive:
        archive.writestr("dataset_diabetes/diabetic_data.csv", text)
    zipped, plain = (load_dataset("diabetes130", tmp_path / name, verify=False) for name in ("zipped", "plain"))
    pd.testing.assert_frame_equal(zipped.train, plain.train)
    got = pd.concat([plain.train, plain.test]).sort_values("time_in_hospital").reset_index(drop=True)
    assert got["race"].tolist() == ["Caucasian", "missing", "Asian"] * 3
    assert got["diag_1"].tolist() == ["circulatory", "diabetes", "missing"] * 3
    assert got["medical_specialty"].tolist() == ["missing", "Surgery", "Other"] * 3
    assert got["A1Cresult"].tolist() == ["None", ">7", "Norm"] * 3
    assert not {"weight", "encounter_id", "patient_nbr", "examide", "citoglipton"} & set(got)


def test_diabetes_options_on_made_rows(tmp_path: Path) -> None:
    (tmp_path / "diabetes130").mkdir()
    diabetes_rows().to_csv(tmp_path / "diabetes130" / "diabetic_data.csv", index=False)
    coded = load_dataset("diabetes130", tmp_path, diagnoses="codes", label="diagnosis", groups=True)
    assert coded.schema.label.categories == ("250.02", "428")
    assert "diag_1" not in coded.schema.names
    assert len(coded.train) + len(coded.test) == 6  # three rows have no first diagnosis
    assert not set(coded.train["patient_nbr"]) & set(coded.test["patient_nbr"])
    first = load_dataset("diabetes130", tmp_path, cohort="strack", split="row", groups=True)
    # Of the first encounters, that of patient 2 ended in death and that of patient 5 in a hospice.
    assert sorted([*first.train["patient_nbr"], *first.test["patient_nbr"]]) == [1, 3, 4]


@pytest.mark.parametrize(
    ("code", "group"),
    [
        *[("390", "circulatory"), ("459.9", "circulatory"), ("785", "circulatory"), ("460", "respiratory")],
        *[
            ("786", "respiratory"),
            ("579", "digestive"),
            ("787", "digestive"),
            ("250", "diabetes"),
            ("250.83", "diabetes"),
        ],
        *[("800", "injury"), ("999", "injury"), ("710", "musculoskeletal"), ("788", "genitourinary")],
        *[
            ("140", "neoplasms"),
            ("239", "neoplasms"),
            ("249", "other"),
            ("V57", "other"),
            ("E885", "other"),
            ("8", "other"),
        ],
    ],
)
def test_icd9_groups_of_strack_et_al_table_2(code: str, group: str) -> None:
    assert icd9_group(code) == group
