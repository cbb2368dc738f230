"""Updates that other federated frameworks recorded, as observations of ours: state dicts, Flower, NVFlare."""
