"""`python -m edgert` is the `edgert` command."""

import sys

from edgert.cli.main import main

sys.exit(main())
