"""``python -m console.cli.mesh``"""

import sys

from console.cli.mesh.command import main

sys.exit(main())
