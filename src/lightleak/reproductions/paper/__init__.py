"""What the papers print: one YAML file per table or figure, in one folder per paper, and the loader that reads them."""
