"""Parts of a page that several kinds of run share, one module each; every function returns blocks or a section."""
