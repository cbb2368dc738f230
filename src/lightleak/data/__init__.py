"""Tables: schema, encoding, datasets, partitions, batches."""
