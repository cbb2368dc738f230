"""MIMIC-IV from small made files with the column names of the official ones."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lightleak.core.errors import DataError, UsageError
from lightleak.data import event_pairs
from lightleak.data.datasets import load_dataset
from lightleak.data.datasets.mimic_iv import FILES, PLAUSIBLE
from lightleak.data.encoder import TableEncoder
from lightleak.data.inversion_task import TaskConfig, make_inversion_task
from lightleak.data.table import Table

# The headers of version 3.1; the loader reads the columns it needs.
HEADERS = {
    "admissions": "subject_id,hadm_id,admittime,dischtime,deathtime,admission_type,admit_provider_id,"
    "admission_location,discharge_location,insurance,language,marital_status,race,edregtime,edouttime,"
    "hospital_expire_flag",
    "patients": "subject_id,gender,anchor_age,anchor_year,anchor_year_group,dod",
    "diagnoses_icd": "subject_id,hadm_id,seq_num,icd_code,icd_version",
    "procedures_icd": "subject_id,hadm_id,seq_num,chartdate,icd_code,icd_version",
    "prescriptions": "subject_id,hadm_id,pharmacy_id,poe_id,poe_seq,order_provider_id,starttime,stoptime,drug_type,"
    "drug,formulary_drug_cd,gsn,ndc,prod_strength,form_rx,dose_val_rx,dose_unit_rx,form_val_disp,form_unit_disp,"
    "doses_per_24_hrs,route",
    "services": "subject_id,hadm_id,transfertime,prev_service,curr_service",
    "omr": "subject_id,chartdate,seq_num,result_name,result_value",
    "emar": "subject_id,hadm_id,emar_id,emar_seq,poe_id,pharmacy_id,enter_provider_id,charttime,medication,event_txt,"
    "scheduletime,storetime",
    "labevents": "labevent_id,subject_id,hadm_id,specimen_id,itemid,order_provider_id,charttime,storetime,value,"
    "valuenum,valueuom,ref_range_lower,ref_range_upper,flag,priority,comments",
}
Files = dict[str, pd.DataFrame]


def write(folder: Path, files: Files, packed: str = ".gz", inside: str = "hosp") -> None:
    (folder / "mimic_iv" / inside).mkdir(parents=True, exist_ok=True)
    for name, frame in files.items():
        rows = frame.reindex(columns=HEADERS[name].split(","))
        rows.to_csv(folder / "mimic_iv" / inside / f"{name}.csv{packed}", index=False)


def made(n_patients: int = 60, seed: int = 0) -> Files:
    """Patients 1000 onwards with one to four admissions each; admission 20000 + i."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n_patients), rng.integers(1, 5, n_patients)) + 1000
    stay = np.arange(len(patient)) + 20_000
    begun = pd.Timestamp("2150-01-01 17:30:00") + pd.to_timedelta(rng.integers(0, 2000, len(stay)), "D")

    def events(n: int) -> pd.DataFrame:
        row = rng.integers(0, len(stay), n)
        return pd.DataFrame({"subject_id": patient[row], "hadm_id": stay[row]})

    def some(values: list[str], n: int) -> np.ndarray:
        return rng.choice(np.array(values, dtype=object), n)

    signs = ["Blood Pressure", "Weight (Lbs)", "BMI (kg/m2)", "Height (Inches)", "eGFR", "Blood Pressure Sitting"]
    omr = events(400)[["subject_id"]].assign(result_name=some(signs, 400), seq_num=rng.integers(1, 3, 400))
    omr["chartdate"] = (begun[0] + pd.to_timedelta(rng.integers(-50, 2050, 400), "D")).strftime("%Y-%m-%d")
    number = rng.integers(30, 90, 400)
    pressure = omr["result_name"].str.startswith("Blood")
    omr["result_value"] = np.where(pressure, [f"{n + 60}/{n}" for n in number], number.astype(str))
    return {
        "admissions": pd.DataFrame(
            {
                "subject_id": patient,
                "hadm_id": stay,
                "admittime": begun,
                "dischtime": begun + pd.to_timedelta(rng.integers(1, 300, len(stay)), "h"),
                "insurance": some(["Medicare", "Other", None], len(stay)),
                "race": some(["WHITE", "ASIAN - CHINESE"], len(stay)),
            }
        ),
        "patients": pd.DataFrame(
            {"subject_id": np.arange(n_patients) + 1000, "gender": some(["F", "M"], n_patients), "anchor_age": 50}
        ),
        "diagnoses_icd": pd.concat(
            pd.DataFrame(
                {
                    "subject_id": patient,
                    "hadm_id": stay,
                    "seq_num": number,
                    "icd_code": some(["4280", "0030", "I214"], len(stay)),
                    "icd_version": rng.choice([9, 10], len(stay)),
                }
            )
            for number in (2, 1)
        ),
        "procedures_icd": events(80).assign(seq_num=1, icd_code="3893", icd_version=9),
        "prescriptions": events(300).assign(drug=some(["Heparin", "Insulin", "Aspirin", "Senna"], 300)),
        "services": events(200).assign(curr_service=some(["MED", "CMED", "NB"], 200)),
        "omr": omr,
        "emar": events(300).assign(medication=some(["Heparin", "Insulin", "Aspirin", None], 300), event_txt="Applied"),
        "labevents": events(500).assign(
            itemid=rng.integers(50_800, 50_806, 500),
            flag=some(["abnormal", None], 500),
            comments='says "high", see\nnote',
        ),
    }


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Table]:
    def from_files(files: Files, seed: int = 0, **options: object) -> Table:
        write(tmp_path, files)
        return load_dataset("mimic_iv", tmp_path, seed=seed, **options)

    return from_files


def whole(table: Table) -> pd.DataFrame:
    return pd.concat([table.train, table.test]).reset_index(drop=True)


def test_every_cell_is_what_a_loop_over_admissions_finds(load) -> None:
    files = made()
    table = load(files, groups=True)
    events = {name: frame.groupby("hadm_id") for name, frame in files.items() if "hadm_id" in frame}
    columns = {name: [] for name in (*table.schema.names, "diagnosis", "subject_id")}

    def of(name: str, stay: int) -> pd.DataFrame:
        groups = events[name]
        return groups.get_group(stay) if stay in groups.groups else files[name].iloc[:0]

    genders = dict(zip(files["patients"]["subject_id"], files["patients"]["gender"], strict=True))
    for row in files["admissions"].itertuples():
        primary = of("diagnoses_icd", row.hadm_id).query("seq_num == 1").iloc[0]
        abnormal = of("labevents", row.hadm_id).query("flag == 'abnormal'")["itemid"].astype(str)
        has = {
            "curr_service": set(of("services", row.hadm_id)["curr_service"]),
            "med": set(of("emar", row.hadm_id)["medication"].dropna()),
            "lab_event": set(abnormal),
        }
        cells = {
            "num_procedures": len(of("procedures_icd", row.hadm_id)),
            "num_medications": of("prescriptions", row.hadm_id)["drug"].nunique(),
            "length_of_stay": (row.dischtime - row.admittime).days,
            "race": row.race,
            "insurance": row.insurance or "missing",
            "gender": genders[row.subject_id],
            "diagnosis": f"icd{primary['icd_version']}:{primary['icd_code']}",
            "subject_id": row.subject_id,
        }
        for name in columns:
            kind = next((kind for kind in has if name.startswith(f"{kind}_")), None)
            if kind is not None:
                cells[name] = "yes" if name.removeprefix(f"{kind}_") in has[kind] else "no"
            columns[name].append(cells.get(name))
    expected = pd.DataFrame(columns).drop(columns=list(PLAUSIBLE))
    got = whole(table).drop(columns=list(PLAUSIBLE))
    got = got.astype({name: object for name in got if name.startswith(("curr", "med_", "lab"))})
    order = list(expected.columns)
    pd.testing.assert_frame_equal(
        got[order].sort_values(order).reset_index(drop=True), expected.sort_values(order).reset_index(drop=True)
    )
    assert set(table.schema.names) > {"curr_service_NB", "med_Insulin", "lab_event_50803", "num_medications"}
    assert not set(table.train["subject_id"]) & set(table.test["subject_id"])


def test_vital_signs_are_the_patient_s_nearest_to_admission_and_the_rest_is_imputed(load) -> None:
    files = made(40)
    admissions, omr = files["admissions"], files["omr"]
    columns = {name: [] for name in PLAUSIBLE}
    for row in admissions.itertuples():
        own = omr[omr["subject_id"] == row.subject_id]
        for name, found in columns.items():
            part = {"systolic": 0, "diastolic": 1}.get(name)
            of_name = own[own["result_name"] == ("Blood Pressure" if part is not None else name)]
            values = of_name["result_value"] if part is None else of_name["result_value"].str.split("/").str[part]
            away = (pd.to_datetime(of_name["chartdate"]) - row.admittime.normalize()).dt.days
            last = {}  # per day those of the highest seq_num
            for days, number, value in zip(away, of_name["seq_num"], values.astype(float), strict=True):
                if PLAUSIBLE[name][0] <= value <= PLAUSIBLE[name][1]:
                    best, so_far = last.get(days, (number, set()))
                    last[days] = (
                        max(best, number),
                        ({value} if number >= best else set()) | (so_far if number <= best else set()),
                    )
            closest = min(map(abs, last), default=None)
            found.append(set().union(*(held for days, (_, held) in last.items() if abs(days) == closest)))
    # Days of stay number the admissions, so that each is found again.
    admissions["dischtime"] = admissions["admittime"] + pd.to_timedelta(np.arange(len(admissions)), "D")
    got = whole(load(files)).set_index("length_of_stay").sort_index()
    for name, found in columns.items():
        values = got[name].tolist()
        gaps = [not measured for measured in found]
        assert 5 < sum(gaps) < len(gaps) - 20
        assert all(value in measured for value, measured in zip(values, found, strict=True) if measured)
        measured_mean = np.mean([value for value, gap in zip(values, gaps, strict=True) if not gap])
        assert {value for value, gap in zip(values, gaps, strict=True) if gap} == {measured_mean}


def test_missing_numbers_are_the_mean_or_drawn_from_a_normal_distribution(load) -> None:
    files = made(400)
    files["omr"] = pd.DataFrame(
        [
            (patient, "2150-06-01", 1, name, value)
            for patient in range(1000, 1200)
            for name, value in (
                ("Blood Pressure", f"{100 + patient % 2 * 40}/70"),
                ("Weight (Lbs)", "150"),
                ("BMI (kg/m2)", "25"),
                ("Height (Inches)", "66"),
                ("eGFR", ">60"),
            )
        ],
        columns=["subject_id", "chartdate", "seq_num", "result_name", "result_value"],
    )
    mean = whole(load(files, groups=True))
    known = mean["subject_id"] < 1200
    expected = mean.loc[known, "systolic"].mean()
    assert set(mean.loc[known, "systolic"]) == {100, 140}
    np.testing.assert_allclose(mean.loc[~known, "systolic"], expected)
    assert (mean["eGFR"] == 60).all()

    drawn = whole(load(files, groups=True, impute="normal"))
    assert set(drawn.loc[known, "systolic"]) == {100, 140}
    filled = drawn.loc[~known, "systolic"]
    # About 500 draws: mean and deviation within five standard errors.
    deviation, n = mean.loc[known, "systolic"].std(ddof=0), len(filled)
    assert abs(filled.mean() - expected) < 5 * deviation / np.sqrt(n)
    assert abs(filled.std() - deviation) < 5 * deviation / np.sqrt(2 * n)
    assert filled.nunique() == n
    pd.testing.assert_frame_equal(drawn, whole(load(files, groups=True, impute="normal")))
    # A column of one value has no deviation to draw from.
    assert (drawn["Weight (Lbs)"] == 150).all()


def test_outliers_and_words_count_as_missing(load) -> None:
    files = made()
    odd = {"Weight (Lbs)": "15000", "BMI (kg/m2)": "0", "Height (Inches)": "170", "eGFR": "pending"}
    odd_rows = [(1000, "2150-06-01", 9, name, value) for name, value in odd.items()]
    odd_rows += [(1000, "2150-06-01", 9, "Blood Pressure", value) for value in ("7/900", "unable", "12/")]
    extra = pd.DataFrame(odd_rows, columns=["subject_id", "chartdate", "seq_num", "result_name", "result_value"])
    with_odd = {**files, "omr": pd.concat([files["omr"], extra])}
    pd.testing.assert_frame_equal(whole(load(with_odd)), whole(load(files)))


@pytest.mark.parametrize(("packed", "inside", "chunk"), [("", "hosp", 13), ("", "", 40), (".gz", "", 10_000)])
def test_neither_chunks_nor_where_the_files_lie_change_the_table(tmp_path, load, monkeypatch, packed, inside, chunk):
    files = made(20)
    expected = load(files, seed=3)
    write(tmp_path / "other", files, packed, inside)
    monkeypatch.setattr(event_pairs, "CHUNK_ROWS", chunk)
    got = load_dataset("mimic_iv", tmp_path / "other", seed=3)
    assert got.schema == expected.schema
    pd.testing.assert_frame_equal(got.train, expected.train)
    pd.testing.assert_frame_equal(got.test, expected.test)


def test_the_most_frequent_medications_and_items_get_a_column(load) -> None:
    files = made()
    names = [name for name in load(files, medications=2, lab_items=3).schema.names if name[:4] in ("med_", "lab_")]
    per_stay = [
        files["emar"].dropna(subset="medication").groupby("medication")["hadm_id"].nunique(),
        files["labevents"].query("flag == 'abnormal'").groupby("itemid")["hadm_id"].nunique(),
    ]
    top = [sorted(counts.nlargest(k).index) for counts, k in zip(per_stay, (2, 3), strict=True)]
    assert names == [*(f"med_{name}" for name in top[0]), *(f"lab_event_{item}" for item in top[1])]
    assert not any(n[:4] in ("med_", "lab_") for n in load(files, medications=0, lab_items=0).schema.names)


def test_admissions_without_a_diagnosis_or_with_a_negative_stay_are_left_out(load) -> None:
    files = made()
    diagnoses, admissions = files["diagnoses_icd"], files["admissions"]
    files["diagnoses_icd"] = diagnoses[(diagnoses["hadm_id"] != 20_000) | (diagnoses["seq_num"] != 1)]
    admissions.loc[1, "dischtime"] = admissions.loc[1, "admittime"] - pd.Timedelta("5h")
    assert len(whole(load(files))) == len(admissions) - 2


def test_the_table_goes_through_encoder_and_task(load) -> None:
    table = load(made(200), groups=True)
    encoder = TableEncoder(table.schema, "onehot").fit(table.train)
    decoded = encoder.decode(encoder.encode(table.test))
    assert (decoded["med_Insulin"] == table.test["med_Insulin"]).all()
    config = TaskConfig(private_classes=3, features=12, group="subject_id", trees=5)
    task = make_inversion_task(table, config, seed=0)
    assert len(task.schema.columns) == 12 and task.facts["rows"]["private_train"] > 100
    assert "med_Insulin=yes" not in task.schema.names
    task.schema.validate(task.private_train)


def test_wrong_files_and_options_are_named(tmp_path, load) -> None:
    files = made(20)
    with pytest.raises(UsageError, match="'medications' of dataset 'mimic_iv' must be at least 0, got -1"):
        load(files, medications=-1)
    twice = {**files, "admissions": pd.concat([files["admissions"]] * 2)}
    with pytest.raises(DataError, match=r"admissions.csv.gz cannot be read: .*'hadm_id' must name each admission once"):
        load(twice)
    with pytest.raises(DataError, match="no 'eGFR' of any patient"):
        load({**files, "omr": files["omr"].query("result_name != 'eGFR'")})
    with pytest.raises(DataError, match="has no primary diagnosis"):
        load({**files, "diagnoses_icd": files["diagnoses_icd"].assign(seq_num=2)})
    with pytest.raises(DataError, match=r"at least 2 primary diagnoses, got \['icd9:4280'\]"):
        load({**files, "diagnoses_icd": files["diagnoses_icd"].assign(icd_code="4280", icd_version=9)})
    write(tmp_path, files)
    for name in FILES:
        path = tmp_path / "mimic_iv" / "hosp" / f"{name}.csv.gz"
        kept = path.read_bytes()
        path.unlink()
        with pytest.raises(DataError, match=f"needs the file 'hosp/{name}.csv.gz'"):
            load_dataset("mimic_iv", tmp_path)
        pd.DataFrame({"other": [1]}).to_csv(path, index=False)
        with pytest.raises(DataError, match=f"{name}.csv.gz cannot be read"):
            load_dataset("mimic_iv", tmp_path)
        path.write_bytes(kept)
