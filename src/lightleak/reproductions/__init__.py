"""The papers' tables and figures, as data, and the runs that fill them."""
