"""An existing pytorch-tabular project, audited by one callback."""

import pandas as pd
from pytorch_tabular import TabularModel
from pytorch_tabular.config import DataConfig, OptimizerConfig, TrainerConfig
from pytorch_tabular.models import GANDALFConfig

import lightleak

rows = range(64)
patients = pd.DataFrame(
    {
        "age": [18.0 + 67 * i % 71 for i in rows],
        "stay": [1.0 + 13 * i % 9 for i in rows],
        "ward": ["ABCD"[i % 4] for i in rows],
        "sex": ["fm"[i // 3 % 2] for i in rows],
        "ill": [int(67 * i % 71 > 35) for i in rows],
    }
)
numbers, categories = ["age", "stay"], ["ward", "sex"]
model = TabularModel(
    data_config=DataConfig(target=["ill"], continuous_cols=numbers, categorical_cols=categories),
    model_config=GANDALFConfig(task="classification", gflu_stages=2),
    optimizer_config=OptimizerConfig(),
    trainer_config=TrainerConfig(
        batch_size=8,
        max_epochs=1,
        accelerator="cpu",
        progress_bar="none",
        checkpoints=None,
        early_stopping=None,
        load_best=False,
    ),
    verbose=False,
)

loader = model.prepare_dataloader(train=patients).train_dataloader()
encoder = lightleak.describe_inputs(loader, names=[*numbers, *categories])
watch = lightleak.LeakageCallback(
    encoder, ["inverting_gradients", "random"], output="runs/tabular_model", max_captures=1
)
model.fit(train=patients, callbacks=[watch])
