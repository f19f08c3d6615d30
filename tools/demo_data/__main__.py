"""Write the demo's data anew, into the package or into the folder that is named."""

import sys
from pathlib import Path

from bough import demo
from tools.demo_data.generate import write

write(Path(sys.argv[1]) if len(sys.argv) > 1 else demo.folder())
