"""``python -m console.cli.yod``"""

import sys

from console.cli.yod.command import main

sys.exit(main())
