"""Run by test_ray_engine.py on two processes: audits ``FOLDER/config.json`` into ``FOLDER/here``."""

import sys
from pathlib import Path

from lightleak.cli import main

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.exit(main(["audit", str(folder / "config.json"), "--output", str(folder / "here")]))
