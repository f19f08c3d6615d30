"""On PYTHONPATH: every survey of this Python, on whatever cluster, starts pretended runs."""

import sys
from pathlib import Path

from bough.survey import launcher

launcher.COMMAND = (sys.executable, str(Path(__file__).parents[2] / "pretender.py"))
