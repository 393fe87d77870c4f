"""``python -m console.cli.pingd``"""

import sys

from console.cli.pingd.command import main

sys.exit(main())
