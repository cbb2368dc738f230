"""Wrong uses, all in one list: each is one message that names the mistake and the mend, and exit code 2."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import lightleak
from lightleak.callbacks.capture_store import save_capture
from lightleak.cli import main
from lightleak.core.errors import UsageError
from lightleak.data.prepared import PreparedTable
from lightleak.integrations.round_recorder import PrivateRows
from lightleak.integrations.server_view import ServerView
from lightleak.integrations.state_dicts import client_update
from lightleak.targets import NetworkSpec, build_network

CONFIG: dict[str, Any] = {
    "data": {"name": "synthetic", "options": {"n_discrete": 1, "n_continuous": 1, "n_rows": 60}},
    "target": {"options": {"hidden": [3]}},
    "training": {"epochs": 1, "batch_size": 4},
    "capture": {"epochs": [0], "per_epoch": 1},
    "initial": {"batch_sizes": [4], "batches": 1},
    "attacks": {"random": {}},
    "device": "cpu",
    "workers": 1,
}
OWN = {**CONFIG, "data": {"table": "mine.csv", "label": "ill"}}
VERTICAL = {
    "kind": "vertical",
    "data": {"name": "fair"},
    "properties": ["religious=strongly"],
    "auxiliary": {"size": 500},
    "attacks": {"provfl_b_mixture": {}},
}
STUDY = {
    **CONFIG,
    "training": {"epochs": 0},
    "attacks": {"tableak": {"restarts": {"search": "int", "low": 1, "high": 3, "default": 2}}},
    "study": {"objectives": {"metric": "cell_accuracy", "where": {"attack": "tableak"}}, "trials": 2},
}

N_ROWS = 60

AUDIT = "audit config.yaml --output new"
MINE = "audit own.yaml --output new"
PARTIES = "audit vertical.yaml --output new"
TUNE = "tune tune.yaml --output new"
ATTACK = "attack config.yaml --output new"
TABLE17 = "reproduce tableak-table17 --output new"
DESCRIBE = "data describe"

WRONG_USES: list[tuple[str, str, str]] = [
    # The command line: what it says, the mistake that is named, the mend that is named.
    ("", "required: command", "lightleak --help"),
    ("audti config.yaml", "invalid choice: 'audti'", "'audit'"),
    ("audit", "needs either a config or --resume", "audit --help"),
    (f"{AUDIT} -v", "got '-v'", "a flag such as --training.epochs"),
    (f"{AUDIT} --training.epochs", "--training.epochs", "needs a value"),
    (f"{AUDIT} --title [open", "got '[open'", "needs a YAML value"),
    ("list attakcs", "invalid choice: 'attakcs'", "'attacks'"),
    ("explain tabbleak", "'tabbleak'", "did you mean 'tableak'"),
    ("explain adult", "'adult' is a dataset", "lightleak data describe adult"),
    ("report", "required: DIR", "report --help"),
    ("report done --title Mine", "unknown argument '--title'", "report --help"),
    ("data describe mine.csv --label ill --drop age sex", "'sex' (--drop", "commas: --drop age,sex"),
    ("data describe mine.csv --rows 3", "unknown argument '--rows'", "see lightleak data describe --help"),
    ("audit config.yaml --output ''", "argument --output", "must name a file or folder, got ''"),
    ("audit --resume=", "argument --resume", "must name a file or folder, got ''"),
    ("doctor --json missing/findings.json", "missing/findings.json", "must be in an existing folder"),
    ("doctor --json mine.csv", "got mine.csv", "--json must end in .json"),
    ("doctor --json mine.json", "mine.json exists", "holds no findings of LightLeak; choose another file"),
    ("doctor --json folder", "the folder folder", "--json must be a file"),
    # Configs: files, keys, types, values.
    ("audit missing.yaml", "missing.yaml", "does not exist"),
    ("audit folder", "config folder", "is no file"),
    ("audit list.yaml", "got list", "must hold a mapping of settings, such as data:"),
    ("audit empty.yaml", "got an empty file", "must hold a mapping of settings, such as data:"),
    ("audit mine.csv", "config mine.csv", "such as data: {table: FILE, label: COLUMN}"),
    ("audit tab.yaml", r"found character '\t'", "line 2, column 1"),
    ("audit latin.yaml", "latin.yaml", "YAML in UTF-8"),
    ("audit repeated.yaml", "key 'data' stands on line 1 and again on line 3", "leave one of them out"),
    (f"{AUDIT} --data '{{name: fair, name: adult}}'", "--data: key 'name'", "leave one of them out"),
    (f"{AUDIT} --attacks [random,tableak,random]", "got 'random' 2 times", "attacks must have distinct names"),
    (f"{AUDIT} --seed -1", "got -1", "seed must be at least 0"),
    (f"{AUDIT} --data.split_seed -1", "got -1", "data.split_seed must be at least 0"),
    (f"{AUDIT} --trainng.epochs 3", "unknown setting 'trainng'", "did you mean 'training'"),
    (f"{AUDIT} --training.epoch 3", "unknown setting training.epoch", "did you mean 'epochs'"),
    (f"{AUDIT} --training 3", "training", "must be a mapping of settings, got 3"),
    (f"{AUDIT} --title.x 3", "title", "must be text, got {'x': 3}"),
    (f"{AUDIT} --seed three", "got three", "seed must be a whole number"),
    (f"{AUDIT} --redact perhaps", "got perhaps", "redact must be true or false or all"),
    (f"{AUDIT} --labels maybe", "got maybe", "labels must be one of true, restored"),
    (f"{AUDIT} --training.optimizer.learning_rate fast", "got fast", "learning_rate must be a number"),
    (f"{AUDIT} --initial.batch_sizes 0", "initial.batch_sizes", "must be at least 1, got 0"),
    (f"{AUDIT} --initial.batch_sizes [4,8,4]", "got 4, 8, 4", "initial.batch_sizes must be distinct"),
    (f"{AUDIT} --capture.epochs [0,0]", "got 0, 0", "capture.epochs must be distinct"),
    (f"{AUDIT} --initial.batch_sizes [49]", "got 49", "batch_size must be at most 48 (training rows of 'synthetic')"),
    (f"{AUDIT} --initial.batch_sizes [1] --target.options.norm batch", "initial.batch_sizes 1", "choose another size"),
    (f"{AUDIT} --training.batch_size 7 --target.options.norm batch", "batch_size 7 leaves", "a batch of one row of 43"),
    (f"{AUDIT} --capture.epochs [5]", "got [5]", "capture.epochs must name one below 1"),
    (f"{AUDIT} --capture.coverage rounds", "got 'rounds'", "capture.coverage must be first or epoch under fedsgd"),
    (f"{AUDIT} --capture.coverage epoch --capture.epochs []", "capture.coverage", "capture.epochs names no epoch"),
    (f"{AUDIT} --capture.coverage epoch --training.epochs 0", "capture.coverage", "training.epochs is 0"),
    ("compare done", "compare needs either another run folder", "or --with FILE"),
    ("compare done done", "done holds no people.csv", "capture.coverage epoch or rounds"),
    (f"{AUDIT} --capture.at clipped", "nothing clips here", "needs training.trainer.gradient_clip_val"),
    (f"{AUDIT} --kind diagonal", "got 'diagonal'", "kind must be one of defense-frontier, released-model, updates"),
    (f"{AUDIT} --training.trainer.max_epochs 3", "cannot set max_epochs", "the audit sets them itself"),
    (f"{AUDIT} --training.trainer.overfit_batches 2", "cannot set overfit_batches", "set limit_train_batches"),
    (f"{AUDIT} --training.trainer.limit_test_batches 0", "got 0", "limit_test_batches must be above 0"),
    (f"{AUDIT} --protocol.local_epochs 5", "protocol.local_epochs", "is a setting of FedAvg"),
    ("audit tune.yaml", "tune.yaml is a study", "run it by lightleak tune"),
    # Configs: what would not end, not fit, or not be written.
    ("audit bomb.yaml", "at most 500,000 values, aliases included", "line 7"),
    ("audit merged.yaml", "at most 500,000 values, aliases included", "line 7"),
    ("audit circle.yaml", "alias *a on line 2", "stands within what it names"),
    ("audit deep.yaml", "at most 50 levels deep", "line 2 is deeper"),
    ("audit keys.yaml", "keys must be text, got true on line 2", "quote it"),
    ("audit surrogate.yaml", "line 2 holds the character U+D800", "which text must not contain"),
    ("audit nul.yaml", "line 2 holds the character U+0000", "which text must not contain"),
    ("tune bomb.yaml", "at most 500,000 values", "aliases included"),
    (f"{MINE} --data.schema bomb.yaml", "schema file bomb.yaml: a YAML text may hold", "at most 500,000 values"),
    (f"{MINE} --data.schema deep.yaml", "schema file deep.yaml", "at most 50 levels deep"),
    (f"{AUDIT} --attacks '&a [*a]'", "--attacks: alias *a on line 1", "stands within what it names"),
    (f"{AUDIT} --title {'[' * 60}", "--title", "at most 50 levels deep"),
    (f"{AUDIT} --attacks '{{1: {{}}}}'", "--attacks: keys must be text, got 1", "quote it"),
    (f"{AUDIT} --title '\"\\ud800\"'", "--title: line 1", "holds the character U+D800"),
    ("audit config.yaml --output new\0", "arguments must be text in UTF-8", "U+0000, got 'new\\x00'"),
    ("audit config.yaml --output new\udcff", "arguments must be text in UTF-8", "U+DCFF, got 'new\\udcff'"),
    (f"audit config.yaml --output {'a' * 300}", "argument --output", "names of at most 255 bytes, got one of 300"),
    (f"audit --resume {'é' * 200}", "argument --resume", "names of at most 255 bytes, got one of 400"),
    (f"audit config.yaml --output {'/a' * 2000}", "argument --output", "at most 3800 bytes, got 4000"),
    (f"{MINE} --data.table {'a' * 300}.csv", "aaa.csv", "must have at most 255 bytes"),
    (f"{AUDIT} --training.epochs 1000000000000", "got 1000000000000", "training.epochs must be at most 100000"),
    (f"{AUDIT} --training.epochs 1e12", "got 1000000000000.0", "training.epochs must be at most 100000"),
    (f"{AUDIT} --initial.batches 1e13", "got 10000000000000.0", "initial.batches must be at most 100000"),
    (f"{AUDIT} --attacks.tableak.restarts 1000000000000", "got 1000000000000", "restarts must be at most 100000"),
    (f"{AUDIT} --target.options.hidden [1000000000000]", "got 1000000000000", "hidden must be at most 100000"),
    (f"{AUDIT} --data.options.n_rows 1000000000000", "got 1000000000000", "n_rows must be at most 10000000"),
    (f"{AUDIT} --workers 1000000000000", "got 1000000000000", "workers must be at least 0 and at most 10000"),
    (f"{AUDIT} --training.optimizer.learning_rate 1e308", "got 1e308", "at most 9.2e+18 in magnitude"),
    (f"{AUDIT} --training.optimizer.learning_rate .inf", "got .inf", "numbers must be finite"),
    (f"{AUDIT} --seed {'9' * 5000}", "--seed", "is no number that can be read"),
    (f"{PARTIES} --training.epochs 1e12", "got 1000000000000.0", "training.epochs must be at most 100000"),
    (f"{TUNE} --trials 1000000000000", "got 1000000000000", "trials must be at most 100000"),
    (f"{TUNE} --workers 1000000000000", "got 1000000000000", "--workers must be at least 0 and at most 10000"),
    (f"{TUNE} --attacks.tableak.restarts.high 1000000000000", "got 1000000000000", "restarts must be at most 100000"),
    (f"{TABLE17} --batches 1000000000000", "got 1000000000000", "--batches must be at most 100000"),
    (f"{TABLE17} --seeds 1000000000000", "got 1000000000000", "--seeds must be at most 10000"),
    # Names of attacks, networks, defenses, tables.
    (f"{AUDIT} --attacks tabbleak", "'tabbleak'", "did you mean 'tableak'"),
    (f"{AUDIT} --attacks my_own", "'my_own'", "is loaded where LIGHTLEAK_PLUGINS names it"),
    (f"{AUDIT} --attacks provfl_b", "attacks.provfl_b", "it needs kind: vertical"),
    (f"{AUDIT} --attacks plgmi", "attacks.plgmi", "it needs kind: released-model"),
    (f"{AUDIT} --attacks.random.tries 3", "random has no setting tries", "settings: "),
    (f"{AUDIT} --attacks.tableak.steps many", "got 'many'", "steps must be a whole number"),
    (f"{AUDIT} --target.network restnet", "'restnet'", "did you mean 'resnet'"),
    (f"{AUDIT} --target.options.hiden [3]", "'hiden'", "options: hidden"),
    (f"{AUDIT} --target.network nothere.net:make", "'nothere.net'", "cannot be imported"),
    (f"{AUDIT} --defense.name gausian_noise", "'gausian_noise'", "did you mean 'gaussian_noise'"),
    (f"{AUDIT} --defense.name gaussian_noise --defense.options.sigma 1", "no setting sigma", "settings: scale"),
    (f"{AUDIT} --data.name adlut", "'adlut'", "did you mean 'adult'"),
    (f"{AUDIT} --data.options.rows 5", "option 'rows' of dataset 'synthetic'", "options: n_discrete"),
    (f"{AUDIT} --data.statistics test --data.encoding quantile", "'quantile' cannot encode", "choose standardized"),
    ("audit adult.yaml --output new", "'adult.data'", "lightleak data prepare adult"),
    # Devices.
    (f"{AUDIT} --device abacus", "got 'abacus'", "auto, cpu, cuda or cuda:N"),
    (f"{AUDIT} --device cuda:99", "'cuda:99' is not on this machine", "auto or cpu"),
    (f"{AUDIT} --training.trainer.devices 999", "got 999", "must be at most"),
    (f"{TABLE17} --device tpu", "got 'tpu'", "auto, cpu, cuda or cuda:N"),
    # One's own table: the file.
    (f"{MINE} --data.table missing.csv", "missing.csv", "does not exist"),
    (f"{MINE} --data.table folder", "table folder", "is no file"),
    (f"{MINE} --data.table empty.csv", "empty.csv cannot be read: it is empty", "needs a line of column names"),
    (f"{MINE} --data.table header.csv", "got 0", "must have at least 2 rows below its column names"),
    (f"{MINE} --data.table latin.csv", "latin.csv cannot be read: it is not UTF-8", "save it as UTF-8"),
    (f"{MINE} --data.table ragged.csv", "saw 5", "quote cells that hold the separator"),
    (f"{MINE} --data.table twice.csv", "repeated: ['age']", "rename them"),
    (f"{MINE} --data.table letter.txt", "'ill' is not a column", "columns: ['Dear all', "),
    (f"{MINE} --data.table book.xlsx", "got '.xlsx'", "export it as one of these"),
    (f"{MINE} --data.table fake.parquet", "fake.parquet", "cannot be read: ArrowInvalid"),
    (f"{MINE} --data.name fair", "name='fair' and table='mine.csv'", "either name or table"),
    # One's own table: its columns.
    (f"{MINE} --data.table dates.csv", "'seen' holds dates (2024-01-01)", "data.drop: [seen]"),
    (f"{MINE} --data.table months.csv", "'seen' holds dates (01 Jan 2024)", "data.drop: [seen]"),
    (f"{MINE} --data.table note.csv", "'note' has 60 distinct strings", "data.drop: [note]"),
    (f"{MINE} --data.table gaps.csv", "'age' has 3 missing values", "data.missing: impute"),
    (f"{MINE} --data.table void.csv", "'dose' has no value at all", "data.drop: [dose]"),
    (f"{MINE} --data.table constant.csv", "'site' is constant", "data.drop: [site]"),
    (f"{MINE} --data.table infinite.csv", "'age' holds infinity", "data.drop: [age]"),
    (f"{MINE} --data.label sick", "'sick' is not a column", "columns: ['age', 'sex', 'ill']"),
    (f"{MINE} --data.label null", "data.table 'mine.csv'", "needs data.label"),
    (f"{MINE} --data.table oneclass.csv", "got ['no']", "must have at least 2 classes"),
    (f"{MINE} --data.table labelgaps.csv", "'ill' has 3 missing values", "leave out the rows without a label"),
    (f"{MINE} --data.table labelfloat.csv", "60 distinct values in 60 rows", "cut its numbers into ranges"),
    (f"{MINE} --data.drop [weight]", "['weight']", "columns: ['age', 'sex', 'ill']"),
    (f"{MINE} --data.drop 3", "got 3", "data.drop must be a list, such as [a, b]"),
    (f"{MINE} --data.drop [ill]", "'ill'", "must leave the label"),
    (f"{MINE} --data.missing ignore", "got ignore", "data.missing must be one of refuse, category, impute"),
    (f"{MINE} --data.schema missing.yaml", "missing.yaml", "does not exist"),
    (f"{MINE} --data.schema schema.yaml", "got 'numerci'", "kind must be one of continuous, integer, categorical"),
    (f"{MINE} --data.schema repeated_schema.yaml", "key 'age' stands on line 1 and", "leave one of them out"),
    (f"{DESCRIBE} mine.csv", "mine.csv is a file", "name its label column with --label"),
    (f"{DESCRIBE} dates.csv --label ill", "'seen' holds dates", "drop it"),
    (f"{DESCRIBE} mine.csv --label ill --drop weight", "['weight']", "columns: ['age', 'sex', 'ill']"),
    (f"{DESCRIBE} adlut", "'adlut'", "did you mean 'adult'"),
    ("data prepare mimic4", "'mimic4'", "did you mean 'mimic_iv'"),
    # Output folders and what is in them.
    ("audit config.yaml --output file", "the file file", "--output must be a folder"),
    ("audit config.yaml --output file/inside", "file/inside cannot be made", "choose another"),
    ("audit config.yaml --output full", "full is not empty and holds no run", "choose another --output"),
    ("audit config.yaml --output done --seed 4", "done holds a run of another config", "choose another --output"),
    ("audit own.yaml --resume done", "another config than own.yaml", "leave the config out"),
    ("audit --resume done --seed 5", "remove '--seed'", "remove"),
    ("audit --resume full", "nothing to resume in full", "name the folder of a run"),
    ("tune tune.yaml --output file/inside", "file/inside cannot be made", "choose another"),
    ("tune tune.yaml --output done", "done holds an audit", "choose another --output"),
    (f"{TABLE17}/../full --dataset fair", "dataset fair", "it has datasets adult"),
    ("report full", "full", "results.json"),
    ("report damaged", "damaged/results.json", "expected JSON"),
    ("report done --output folder", "the folder folder", "--output must be a file"),
    ("report done --output mine.csv", "got mine.csv", "--output must end in .html or .htm"),
    ("report done --output done/results.json", "got done/results.json", "--output must end in .html or .htm"),
    ("report done --output mine.html", "mine.html exists", "holds no report of LightLeak; choose another file"),
    ("report done --output link.html", "link.html exists", "choose another file or remove it"),
    ("report done --output fresh.html --pdf mine.pdf", "--pdf mine.pdf exists", "choose another file"),
    ("report done --output mine.htm --pdf", "--pdf mine.pdf exists", "choose another file"),
    ("report done --pdf=mine.csv", "got mine.csv", "--pdf must end in .pdf"),
    ("report --pdf full", "full", "results.json"),
    ("report done --output missing/report.html", "missing/report.html", "must be in an existing folder"),
    # Captures, of other versions, networks and kinds.
    (ATTACK, "required: --capture", "attack --help"),
    (f"{ATTACK} --capture full", "--capture full holds no captured update", "a folder with observation/facts.json"),
    (f"{ATTACK} --capture later", "schema_version must be 1, got 99", "attack it with that version"),
    (f"{ATTACK} --capture othernet", "do not fit the network 'mlp'", "capture it with its own"),
    (f"{ATTACK} --capture unknownnet", "unknown network 'nett'", "known: "),
    (f"{ATTACK} --capture cut", "tensors.safetensors", "is not a safetensors file"),
    (f"{ATTACK} --capture garbled", "facts.json", "is not JSON"),
    (f"{ATTACK} --capture traversal", "facts.step must be a whole number", "got '../../x'"),
    (f"{ATTACK} --capture textclasses", "n_classes must be a whole number from 2", "got '2'"),
    (f"{ATTACK} --capture endless", "facts.epochs must be a whole number from 1", "got 1000000000000"),
    (f"{ATTACK} --capture wrongmarginals", "the marginal of column 'd0' must be values", "as many probabilities"),
    (f"{ATTACK} --capture othercolumns", "block 'd0' must begin at 0", "got 1:"),
    (f"{ATTACK} --capture lowbound", "rows hold numbers in column 'c0' beyond", "that the update states"),
    (f"{ATTACK} --capture swapped", "bounds of column 'c0' must ascend", "got"),
    (f"{ATTACK} --capture done/captures --attacks tableak_fedavg", "one FedSGD gradient", "local training (FedAvg)"),
    ("attack config.yaml --capture done --output done", "done holds an audit", "choose another --output"),
    ("attack vertical.yaml --capture done/captures --output new", "got None", "must describe intermediate results"),
    # Studies, reproductions, vertical audits.
    ("tune config.yaml --output new", "config.yaml", "needs a section 'study'"),
    (f"{TUNE} --trials 0", "got 0", "study.trials must be at least 1"),
    (f"{TUNE} --trials many", "'many'", "tune --help"),
    (f"{TUNE} --study.sampler.name tp", "got tp", "sampler.name must be one of tpe, nsga2, random"),
    (f"{TUNE} --study.trial 3", "unknown setting 'trial'", "did you mean 'trials'"),
    (f"{TUNE} --attacks.tableak.restarts.search whole", "unknown search 'whole'", "known: float, int, choice"),
    (f"{TUNE} --attacks.tableak.restarts.low 9", "got low 9 and high 3", "low must be below high"),
    ("reproduce tableak-tabel17", "'tableak-tabel17'", "did you mean 'tableak-table17'"),
    (f"{TABLE17} --attacks tableek", "attacks tableek", "it has datasets adult; attacks "),
    (f"{TABLE17} --batch-sizes 8;16", "got '8;16'", "whole numbers separated by commas"),
    (f"{TABLE17} --batches 0", "got 0", "--batches must be at least 1"),
    (f"{TABLE17} --workers -1", "got -1", "--workers must be at least 0 and at most 10000"),
    (f"{TABLE17} --seed -1", "got -1", "--seed must be at least 0"),
    (f"{TUNE} --study.seed -1", "got -1", "seed must be at least 0"),
    (f"{TABLE17} --labels guessed", "'guessed'", "choose from 'true', 'restored'"),
    (f"{TABLE17} --data missing --dataset adult", "in missing/adult", "lightleak data prepare adult"),
    (f"{PARTIES} --seeds 0,-1", "got -1", "seeds must be at least 0"),
    (f"{PARTIES} --attacks tableak", "'tableak'", "known: aia"),
    (f"{PARTIES} --properties [religious=never]", "no value 'never'", "known: 'not', 'mildly'"),
    (f"{PARTIES} --attacks.aia_raw_adjusted.attack aia", "got 'aia'", "must be the attack of that name"),
    (f"{PARTIES} --properties religious", "got 'religious'", "written column=value"),
    (f"{PARTIES} --parties.columns [[religious],[agee]]", "unknown: ['agee']", "must cover every feature once"),
    (f"{PARTIES} --auxiliary.size 100000", "got 100000", "must be at most 5093 (training rows)"),
]

MISSING_PACKAGES: list[tuple[str, str, str]] = [
    # A package that is not installed, a use that needs it, the extra that brings it.
    ("opacus", f"{AUDIT} --defense.name dp_sgd --defense.options.noise_multiplier 1", '-e ".[dp]"'),
]


def _tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    mine = pd.DataFrame(
        {"age": rng.integers(20, 80, N_ROWS), "sex": rng.choice(["f", "m"], N_ROWS), "ill": ["no", "yes"] * 30}
    )
    days, early = pd.date_range("2024-01-01", periods=N_ROWS), np.arange(N_ROWS) < 3
    frames = {
        "mine": mine,
        "dates": mine.assign(seen=days.strftime("%Y-%m-%d")),
        "months": mine.assign(seen=days.strftime("%d %b %Y")),
        "note": mine.assign(note=[f"came on day {i} with a cough" for i in range(N_ROWS)]),
        "gaps": mine.assign(age=mine["age"].mask(early)),
        "void": mine.assign(dose=np.nan),
        "constant": mine.assign(site="north"),
        "infinite": mine.assign(age=mine["age"].astype(float).mask(early, np.inf)),
        "oneclass": mine.assign(ill="no"),
        "labelgaps": mine.assign(ill=mine["ill"].mask(early)),
        "labelfloat": mine.assign(ill=rng.normal(size=N_ROWS)),
    }
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    texts = {
        "empty.csv": "",
        "header.csv": "age,sex,ill\n",
        "ragged.csv": "age,sex,ill\n1,f,no\n2,m,yes,extra,more\n",
        "twice.csv": "age,age,ill\n1,2,no\n2,3,yes\n",
        "letter.txt": "Dear all,\nthis is, no table\nbye,bye\n",
        "fake.parquet": "no parquet",
        "book.xlsx": "PK",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "latin.csv").write_bytes("age,sex,ill\n3,männlich,no\n4,f,yes\n".encode("latin-1"))


def _configs(folder: Path) -> None:
    adult = {**CONFIG, "data": {"name": "adult"}}
    schema = {"columns": [{"name": "age", "kind": "numerci"}], "label": {"name": "ill"}}
    configs = {"config": CONFIG, "own": OWN, "vertical": VERTICAL, "tune": STUDY, "adult": adult, "schema": schema}
    for name, content in configs.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    (folder / "list.yaml").write_text("- a\n- b\n")
    (folder / "empty.yaml").write_text("")
    (folder / "repeated.yaml").write_text("data: {name: fair}\ndevice: cpu\ndata: {name: adult}\n")
    (folder / "repeated_schema.yaml").write_text("columns: [{name: age, age: 3, age: 4}]\nlabel: {name: ill}\n")
    (folder / "tab.yaml").write_text("data:\n\tname: fair\n")
    (folder / "latin.yaml").write_bytes("title: Prüfung\n".encode("latin-1"))


def _endless(folder: Path) -> None:
    """YAML that is small as a file and large, endless or unwritable as a value."""
    levels = [("a", "data: &a [fair]")]
    merged = ["data: &a {name: fair}"]
    for name in "bcdefghij":
        before = levels[-1][0]
        tenfold = ", ".join([f"*{before}"] * 10)
        levels.append((name, f"{name}: &{name} [{tenfold}]"))
        merged.append(f"{name}: &{name} {{<<: [{tenfold}], own_{name}: 1}}")
    texts = {
        "bomb": "\n".join(text for _, text in levels),
        "merged": "\n".join(merged),
        "circle": "data: {name: fair}\nattacks: &a {random: *a}",
        "deep": f"data: {{name: fair}}\nattacks: {'[' * 1000}",
        "keys": "data: {name: fair}\nattacks: {true: {}}",
        "surrogate": 'data: {name: fair}\ntitle: "\\ud800"',
        "nul": 'data: {name: fair}\ntitle: "a\\0"',
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)


def _without_upper_bounds(facts: dict[str, Any]) -> None:
    for column in facts["encoder"]["schema"]["columns"]:
        column.pop("upper", None)


def _damaged(folder: Path) -> None:
    """Copies of the finished run and of its capture, each wrong in one way."""
    shutil.copytree(folder / "done", folder / "damaged")
    (folder / "damaged" / "results.json").write_text("{")

    def copy(name: str, change: Callable[[dict[str, Any]], object] = lambda facts: None) -> Path:
        shutil.copytree(folder / "done" / "captures", folder / name)
        (facts_file,) = (folder / name).rglob("facts.json")
        facts = json.loads(facts_file.read_text())
        change(facts)
        facts_file.write_text(json.dumps(facts))
        return facts_file

    copy("later", lambda facts: facts.update(schema_version=99))
    copy("othernet", lambda facts: facts["network"]["options"].update(hidden=[7]))
    copy("unknownnet", lambda facts: facts["network"].update(name="nett"))
    copy("garbled").write_text("{")
    copy("traversal", lambda facts: facts["facts"].update(step="../../x"))
    copy("textclasses", lambda facts: facts["network"].update(n_classes="2"))
    copy("endless", lambda facts: facts["facts"].update(epochs=10**12))
    copy("wrongmarginals", lambda facts: facts["marginals"].update(d0="often"))
    copy("othercolumns", lambda facts: facts["network"]["layout"]["blocks"][0].__setitem__(1, 1))
    for name, change in (("lowbound", lambda t: t["shift"][-1:]), ("swapped", lambda t: t["lower"] - 1)):
        file = copy(name, _without_upper_bounds).with_name("tensors.safetensors")
        held = load_file(file)
        known = {key.removeprefix("encoder_tensors/"): value for key, value in held.items()}
        save_file({**held, "encoder_tensors/upper": change(known).clone()}, file)
    tensors = copy("cut").with_name("tensors.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:40])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with configs, tables, a finished run, and captures of it, most of them wrong."""
    folder = tmp_path_factory.mktemp("place")
    _tables(folder)
    _configs(folder)
    _endless(folder)
    (folder / "file").write_text("a file")
    (folder / "mine.html").write_text("<!doctype html>\n<title>LightLeak</title>\n<p>My notes on it.</p>\n")
    (folder / "mine.pdf").write_bytes(b"%PDF-1.4\n%%EOF\n")
    (folder / "mine.json").write_text('{"findings": []}')
    (folder / "link.html").symlink_to("/dev/null")
    (folder / "folder").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "letter").write_text("mine")
    assert main(["audit", str(folder / "config.yaml"), "--output", str(folder / "done")]) == 0
    _damaged(folder)
    return folder


@pytest.fixture
def inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, made the current one, on a machine without real tables."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LIGHTLEAK_DATA_DIR", "no-tables")
    return place


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*") if path.is_file()}


def assert_refused(use: str, parts: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(folder)
    capsys.readouterr()
    code = main(shlex.split(use))
    out, err = capsys.readouterr()
    assert code == 2, err
    assert err.startswith("lightleak: ") and "Traceback" not in err and "Error: " not in err.partition(":")[0]
    message = " ".join(err.split())
    for part in parts:
        assert part in message
    assert out == "" and contents(folder) == before, "something was begun"


def test_there_are_at_least_sixty_and_each_is_listed_once() -> None:
    uses = [use for use, _, _ in WRONG_USES]
    assert len(set(uses)) == len(uses) >= 60
    commands = ("audit", "attack", "tune", "reproduce", "report", "data", "doctor", "list", "explain")
    assert {use.split()[0] for use in uses if use} >= set(commands)


@pytest.mark.parametrize(("use", "mistake", "mend"), WRONG_USES, ids=[use or "nothing" for use, _, _ in WRONG_USES])
def test_wrong_use(use: str, mistake: str, mend: str, inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(use, (mistake, mend), inside, capsys)


@pytest.mark.parametrize(("package", "use", "mend"), MISSING_PACKAGES)
def test_a_package_that_is_missing(
    package: str, use: str, mend: str, inside: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # an import of it fails, as where it is not installed
    assert_refused(use, (mend,), inside, capsys)


def test_an_output_that_may_not_be_written(
    inside: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)  # for root every folder may be written
        assert_refused(AUDIT, ("--output new cannot be made or written (Permission denied)",), inside, capsys)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        assert_refused("report done --output other.html", ("in a writable folder",), inside, capsys)


def _frame() -> pd.DataFrame:
    return pd.DataFrame({"age": range(20, 60), "sex": ["f", "m"] * 20, "ill": ["no", "no", "yes", "yes"] * 10})


def _audit(model: Any = "mlp", **settings: Any) -> Any:
    return lightleak.audit_model(_frame(), model, **{"label": "ill", "output": "new", **settings})


def _levels() -> pd.DataFrame:
    names = pd.MultiIndex.from_tuples([("a", "age"), ("a", "sex"), ("b", "ill")])
    return _frame().set_axis(names, axis=1)


def _twice() -> pd.DataFrame:
    return _frame().set_axis(["age", "age", "ill"], axis=1)


def _prepared() -> PreparedTable:
    return lightleak.prepare(_frame(), label="ill")


def _spec() -> NetworkSpec:
    return NetworkSpec("linear", 2, _prepared().encoder.layout)


def _received(before: Any = None, sent: Any = None, n_rows: Any = 6) -> Any:
    state = build_network(_spec(), seed=0).state_dict()
    view = ServerView(_spec(), _prepared().encoder)
    return client_update(before or state, sent or state, view, n_rows)


class _ByIndex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x.argmax(-1))


MODULE = nn.Linear(3, 2)

WRONG_CALLS: list[tuple[str, Callable[[], Any], str, str]] = [
    ("no label", lambda: lightleak.prepare(_frame(), label="sick"), "'sick' is not a column", "columns: ['age'"),
    ("a list", lambda: lightleak.prepare(_frame(), label="ill", drop="age"), "the string 'age'", "list of columns"),
    ("dates", lambda: lightleak.prepare("dates.csv", label="ill"), "'seen' holds dates", "drop=['seen']"),
    ("gaps", lambda: lightleak.prepare("gaps.csv", label="ill"), "3 missing values", "missing='impute'"),
    ("a label", lambda: _audit(label=None), "label", "must name the label column"),
    ("a network", lambda: _audit("mpl"), "'mpl'", "did you mean 'mlp'"),
    ("a module", lambda: _audit(nn.Linear(9, 2)), "Linear", "must take encoded rows [n, 3]"),
    ("classes", lambda: _audit(nn.Linear(3, 5)), "got 5", "must return 2 logits"),
    ("no module", lambda: _audit(lambda width, classes: "net"), "got str", "must be or make an nn.Module"),
    (
        "a class",
        lambda: _audit(_ByIndex),
        "_ByIndex does not take them",
        "takes (width, n_classes), here (3, 2)",
    ),
    ("a lambda", lambda: _audit(lambda: MODULE), "<lambda> does not take them", "takes (width, n_classes)"),
    ("an attack", lambda: _audit(attacks="tabbleak"), "'tabbleak'", "did you mean 'tableak'"),
    ("a batch size", lambda: _audit(batch_size=4000), "got 4000", "must be at most"),
    ("a setting", lambda: _audit(settings={"lables": "true"}), "'lables'", "did you mean 'labels'"),
    ("workers", lambda: _audit(settings={"workers": 2}), "got 2", "workers must be 1"),
    ("a folder", lambda: _audit(output="full"), "full is not empty", "choose another --output"),
    ("updates", lambda: lightleak.attack_updates([{}], output="new"), "got dict", "ClientUpdate"),
    ("a capture", lambda: lightleak.attack_updates("full", output="new"), "full", "observation/facts.json"),
    ("a config", lambda: lightleak.run_config({"data": {}}, "new"), "got dict", "must be one of load_config"),
    ("nothing", lambda: _audit(None), "got NoneType", "must be or make an nn.Module"),
    ("doubles", lambda: _audit(nn.Linear(3, 2).double()), "got torch.float64", "hand over model.float()"),
    ("an index", lambda: _audit(_ByIndex(), attacks="tableak"), "does not reach 2 of 2 columns", "@ table.weight"),
    ("two", lambda: _audit(_ByIndex(), attacks=["tableak", "exact"]), "none of the attacks applies", "exact: "),
    (
        "gelu",
        lambda: _audit(nn.Sequential(nn.Linear(3, 2), nn.GELU()), attacks="exact"),
        "logits of Sequential",
        "Linear layer",
    ),
    ("lazy", lambda: _audit(nn.Sequential(nn.LazyLinear(2))), "without a shape yet", "run it once on encoded rows"),
    ("no weights", lambda: _audit(nn.Identity()), "Identity has no parameters", "gradient"),
    ("softmax", lambda: _audit(nn.Sequential(nn.Linear(3, 2), nn.Softmax(-1))), "probabilities", "return logits"),
    ("a batch size twice", lambda: _audit(batch_size=[4, 4]), "got 4, 4", "batch_sizes must be distinct"),
    ("a fraction", lambda: _audit(batch_size=8.0), "got 8.0", "batch_size must be a whole number"),
    ("a word", lambda: _audit(batch_size="8"), "got '8'", "batch_size must be a whole number"),
    ("a number", lambda: _audit(attacks=3), "got int", "attacks must be names"),
    ("words", lambda: _audit(settings="labels"), "got str", "settings must be a mapping of dotted keys"),
    ("no folder", lambda: _audit(output=None), "got NoneType", "output must be a path"),
    ("a device", lambda: _audit(device="abacus"), "got 'abacus'", "auto, cpu, cuda or cuda:N"),
    ("devices", lambda: _audit(device="cpu", settings={"device": "cuda"}), "'device': 'cuda'", "give one"),
    ("a series", lambda: lightleak.prepare(_frame()["age"], label="ill"), "got Series", "data must be a DataFrame"),
    ("an array", lambda: lightleak.prepare(_frame().to_numpy(), label="ill"), "got ndarray", "must be a DataFrame"),
    ("levels", lambda: lightleak.prepare(_levels(), label="ill"), "got 2, such as ('a', 'age')", "'_'.join"),
    ("twice", lambda: lightleak.prepare(_twice(), label="ill"), "repeated: ['age']", "rename them"),
    ("no list", lambda: lightleak.prepare(_frame(), label="ill", drop=None), "got NoneType", "drop must be a list"),
    ("a mapping", lambda: lightleak.prepare(_frame(), label="ill", schema={}), "got dict", "a YAML file"),
    ("rows", lambda: _prepared().encode(_frame()["age"]), "got Series", "frame must be a DataFrame"),
    ("no tensor", lambda: lightleak.describe_inputs(_frame()), "got DataFrame", "is for lightleak.prepare"),
    ("a frame", lambda: lightleak.LeakageCallback(_frame()), "got DataFrame", "lightleak.prepare"),
    ("no encoder", lambda: lightleak.LeakageCallback(None), "got NoneType", "encoder must be a TableEncoder"),
    ("a table", lambda: lightleak.attack_updates(_frame(), output="new"), "got DataFrame", "ClientUpdate"),
    ("no updates", lambda: lightleak.attack_updates(None, output="new"), "got NoneType", "a folder of captures"),
    (
        "modules",
        lambda: _received(MODULE, MODULE),
        "before must be a state dict, got the module Linear",
        "call .state_d",
    ),
    ("one array", lambda: _received(3), "before must be a state dict", "got int"),
    ("a count", lambda: _received(n_rows="6"), "got '6'", "n_rows must be a whole number"),
    ("half a row", lambda: _received(n_rows=6.0), "got 6.0", "n_rows must be a whole number"),
    ("no view", lambda: client_update({}, {}, {}, 6), "got dict", "view must be a ServerView"),
    ("no spec", lambda: ServerView(MODULE, _prepared().encoder), "network must be a NetworkSpec", "hand_over(module)"),
    ("unencoded", lambda: ServerView(_spec(), _prepared()), "got PreparedTable", "encoder must be a TableEncoder"),
    ("plain rows", lambda: PrivateRows(_frame(), [0]), "got DataFrame", "encoder.encode(frame)"),
    ("plain labels", lambda: PrivateRows(_prepared().encode()[0], [0]), "got list", "encoder.encode_labels(frame)"),
    ("no update", lambda: save_capture("captures", {}), "got dict", "update must be a ClientUpdate"),
    ("a key", lambda: lightleak.load_config("config.yaml", {"trainng.epochs": 1}), "'trainng'", "'training'"),
    ("a number", lambda: _audit(settings={"attacks": {1: {}}}), "got 1", "keys of settings must be text"),
    ("infinity", lambda: _audit(settings={"training.validation_fraction": float("inf")}), "got inf", "must be finite"),
    ("a surrogate", lambda: _audit(settings={"title": "\ud800"}), "U+D800", "must not contain"),
]


@pytest.mark.parametrize(("call", "mistake", "mend"), [c[1:] for c in WRONG_CALLS], ids=[c[0] for c in WRONG_CALLS])
def test_wrong_call(call: Callable[[], Any], mistake: str, mend: str, inside: Path) -> None:
    before = contents(inside)
    with pytest.raises(UsageError) as refused:
        call()
    assert mistake in str(refused.value) and mend in str(refused.value)
    assert contents(inside) == before
